"""docs/reference/constraints.md says what this build does."""

from __future__ import annotations

from tests.support.constraints_page import page
from tests.support.runs import ROOT


def test_the_page_is_up_to_date() -> None:
    path = ROOT / "docs" / "reference" / "constraints.md"
    assert path.read_text(encoding="utf-8") == page(), "run `make docs`"
