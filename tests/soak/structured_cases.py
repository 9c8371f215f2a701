"""The structured-output cases as constraints, for measurements."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepinfer_cli.constraints.types import ConstraintSpec

FOLDER = Path(__file__).resolve().parents[1] / "cases" / "structured"


def _cases(name: str) -> Iterator[dict[str, Any]]:
    for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def specs() -> Iterator[tuple[str, ConstraintSpec]]:
    """(name, constraint) of every case, those that are refused included."""
    for case in _cases("schema"):
        yield case["id"], ConstraintSpec("json_schema", json.dumps(case["schema"]))
    for case in _cases("regex"):
        yield case["id"], ConstraintSpec("regex", case["pattern"])
    for case in _cases("ebnf"):
        yield case["id"], ConstraintSpec("grammar", case["grammar"], case["dialect"])


def schema_walks() -> Iterator[tuple[ConstraintSpec, list[str]]]:
    """Each schema with the texts that it accepts."""
    for case in _cases("schema"):
        yield ConstraintSpec("json_schema", json.dumps(case["schema"])), case["accept"]
