"""Runs with the built-in fake model inside the test's own process, so that hundreds of them take seconds."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.config.settings import EngineConfig, ModelConfig
from deepinfer_cli.console import Console, Talk
from deepinfer_cli.engine import batch_run, native
from deepinfer_cli.errors import describe
from tests.support.runs import parse_rows


@dataclass(frozen=True)
class Lost:
    """A completion that the engine ended with an error worth a retry."""

    id: int
    error: str = "the worker was lost"
    error_retryable: bool = True
    samples: tuple[Any, ...] = ()
    prompt_logprobs: tuple[Any, ...] = ()
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    queue_seconds: float = 0.0
    first_token_seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass
class Ran:
    code: int
    said: str  # stderr, and the error that main() would have printed


@dataclass
class Folder:
    """A folder with an input, and runs over it."""

    path: Path
    monkeypatch: pytest.MonkeyPatch
    out_name: str = "out.jsonl"
    settings: dict[str, Any] = field(default_factory=dict)  # of every run
    lost: set[int] = field(default_factory=set)  # requests of the next runs' stages that fail, by their id
    num_engines: int = 0  # started so far

    def __post_init__(self) -> None:
        make, poll = native.NativeEngine.__init__, native.NativeEngine.poll

        def counted(engine: Any, *args: Any, **kwargs: Any) -> None:
            self.num_engines += 1
            make(engine, *args, **kwargs)

        def losing(engine: Any, *args: Any) -> list[Any]:
            return [Lost(done.id) if done.id in self.lost else done for done in poll(engine, *args)]

        self.monkeypatch.setattr(native.NativeEngine, "__init__", counted)
        self.monkeypatch.setattr(native.NativeEngine, "poll", losing)

    @property
    def input(self) -> Path:
        return self.path / "in.jsonl"

    @property
    def out(self) -> Path:
        return self.path / self.out_name

    @property
    def run_file(self) -> Path:
        return self.path / f"{self.out_name}.run.json"

    def write(self, rows: Sequence[Any]) -> None:
        """Rows as values; text stands for itself."""
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        self.input.write_text("".join(line + "\n" for line in lines))

    def run(
        self, *, resume: bool = False, force: bool = False, inputs: Sequence[Path] = (), **settings: Any
    ) -> Ran:
        config = RunConfig(
            inputs=tuple(map(str, inputs or [self.input])),
            model=ModelConfig(model="fake"),
            engine=EngineConfig(threads=1),
            resume=resume,
            force=force,
        )
        values = {"output": str(self.out), **self.settings, **settings}
        config = config.with_values(values, Origin("cli"))
        stderr = io.StringIO()
        console = Console(Talk(progress="none"), stderr=stderr)
        try:
            code = batch_run.run(config, console)
        except Exception as error:
            described = describe(error)
            return Ran(described.exit_code, f"{stderr.getvalue()}{described.message} | {described.hint}")
        return Ran(code, stderr.getvalue())

    def resume(self, **settings: Any) -> Ran:
        return self.run(resume=True, **settings)

    def rows(self) -> list[dict[str, Any]]:
        return parse_rows(self.out.read_bytes())

    def leftovers(self) -> set[str]:
        """Files beside input, outputs and run file: there must be none after a complete run."""
        return {path.name for path in self.path.iterdir() if path.name.startswith(".")}

    def attempts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run_file.read_text())["attempts"]
        return found


def mixed_rows(count: int) -> list[Any]:
    """Rows of every kind: sampled, several samples, no id, bad parameter, scores, not JSON, a doubled id."""
    rows: list[Any] = []
    for i in range(count):
        row: dict[str, Any] = {"id": f"w{i}", "prompt": f"row {i}", "max_tokens": 3 + i % 4}
        kind = i % 8
        if kind == 1:
            row["n"] = 2
        elif kind == 2:
            del row["id"]
        elif kind == 3:
            row["temperature"] = -1
        elif kind == 4:
            row = {**row, "metadata": {"k": ["\u2028", 1.50], "i": i}, "logprobs": True}
        elif kind == 5 and i > 8:
            row["id"] = "w0"
        elif kind == 6:
            rows.append('{"id": "torn')
            continue
        rows.append(row)
    return rows
