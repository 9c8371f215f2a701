"""The folder of a saved run: what may be written there, and what is written at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from deepinfer_cli.bench.record import CELLS, JOURNAL
from deepinfer_cli.bench.tables import rendered
from deepinfer_cli.errors import UsageError
from deepinfer_cli.results.durable import replace_text

CONFIG: Final = "config.yaml"
REPORT: Final = "report.html"
VIEWS: Final[Mapping[str, str]] = {
    CELLS: "json",
    "cells.jsonl": "jsonl",
    "cells.csv": "csv",
    "table.md": "md",
}
_FILES: Final = (JOURNAL, CONFIG, REPORT, *VIEWS)


def default_folder(model: str | None) -> Path:
    """Where a sweep goes when nobody says so."""
    name = Path((model or "small-model").rstrip("/")).name
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name.removesuffix(".gguf")).strip("-.") or "model"
    return Path(f"bench-{slug}")


def check_folder(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuses to mix or lose results; empties the folder of ours when asked to."""
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", "--save DIR")
    found = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    if resume:
        if JOURNAL not in found:
            raise UsageError(f"{folder} holds no benchmark to resume", "leave --resume out to begin one")
        return
    if not found:
        return
    if JOURNAL not in found:
        raise UsageError(f"{folder} holds other files, {found[0]} for one", "--save another folder")
    if not overwrite:
        raise UsageError(
            f"{folder} holds a benchmark already", "--resume goes on with it, --overwrite replaces it"
        )
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)


def write_views(folder: Path, document: Mapping[str, Any]) -> None:
    """Every form of the document, each replaced as a whole."""
    for name, form in VIEWS.items():
        replace_text(folder / name, rendered(document, form))
