"""Where the loop's lines go: the output file of `run`, or whatever another command puts in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from deepinfer_cli.config.run_config import RunConfig
    from deepinfer_cli.progress import Progress


class LineOutput(Protocol):
    """What the writer and the loop need of an output."""

    name: str  # for people
    num_rows: int
    is_pipe: bool

    @property
    def fd(self) -> int: ...
    def write(self, line: str) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class RowSink(LineOutput, Protocol):
    """Takes the result rows in place of an output file (engine/batch_run.py, `run(..., sink=...)`)."""

    def start(self, config: RunConfig, manifest: Mapping[str, Any], progress: Progress) -> None:
        """Called once, before the first row: the settings as they finally are, and the run file's content."""
        ...
