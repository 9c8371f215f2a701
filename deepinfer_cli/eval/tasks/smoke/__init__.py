"""Sixty small problems of our own: whether model, template, engine and scoring work together at all."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from deepinfer_cli.eval.tasks.custom import Custom


class Smoke(Custom):
    name = "smoke"
    title = "smoke test"
    num_records = 60
    needs_data = None
    settings = MappingProxyType({"temperature": 0.0, "max_tokens": 128})
    own_data = Path(__file__).parent / "problems.jsonl"


TASK = Smoke
