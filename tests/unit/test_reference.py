"""Generated files are what the code says now."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from deepinfer_cli.config.json_schema import run_config_schema
from deepinfer_cli.reference import PAGES

ROOT = Path(__file__).parents[2]
FILES = [(what, name) for what, files in PAGES.items() for name in files]


@pytest.mark.parametrize(("what", "name"), FILES, ids=[name for _, name in FILES])
def test_generated_files_are_up_to_date(what: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert (ROOT / name).read_text(encoding="utf-8") == PAGES[what][name](), f"run `make {what}`"


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(run_config_schema())
