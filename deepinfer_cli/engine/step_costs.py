"""What steps have cost, kept between runs: one small file for each machine, model, build, precision and
number of threads. It only saves the next run its own measuring, so nothing here ever fails a run.

    $DEEPINFER_CACHE/step-costs/DIGEST.txt

The text is the engine's (native/src/engine/step_cost.h), which takes nothing from a damaged one. Runs at the
same time each write a whole file; the last one stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepinfer_cli.errors import DeepInferError
from deepinfer_cli.models.cache import cache_root, written_whole

_MAX_BYTES = 1 << 18


def file_for(key: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()
    return cache_root() / "step-costs" / f"{digest[:32]}.txt"


def read(file: Path | None) -> str:
    """Empty when there is nothing that could be a table."""
    if file is None:
        return ""
    try:
        with file.open("rb") as handle:
            return handle.read(_MAX_BYTES).decode("ascii")
    except (OSError, ValueError):
        return ""


def write(file: Path | None, text: str) -> None:
    if file is None or not text:
        return
    try:
        with written_whole(file) as handle:
            handle.write(text.encode("ascii"))
    except (DeepInferError, OSError):
        return  # a cache that is read-only or full
