"""Where our rules and math-verify differ is what docs/reference/eval.md says; elsewhere they agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deepinfer_cli.eval.scoring.score import score_output
from deepinfer_cli.eval.scoring.second_opinion import second_opinions
from deepinfer_cli.eval.scoring.types import Gold

REFERENCE = Path(__file__).parents[2] / "docs/reference/eval.md"
_ROW = re.compile(r"\| `(.+?)`( \(cut off\))?(?:, right: (\d+))? \| (\w+) \| (correct|wrong) \| .+ \|")

pytestmark = pytest.mark.oracle


def rows_of_the_page() -> list[tuple[str, str, str, str, str]]:
    """(output, finish reason, right answer, our verdict, math-verify's)."""
    _, _, section = REFERENCE.read_text().partition("### Where the second opinion differs")
    section = section.partition("\n## ")[0]
    return [
        (m[1], "length" if m[2] else "stop", m[3] or "70", m[4], m[5])
        for line in section.splitlines()
        if (m := _ROW.fullmatch(line))
    ]


def alone(output: str, gold: str) -> bool:
    """math-verify on the whole output, as it is usually called."""
    import math_verify as library

    return bool(library.verify(library.parse(f"\\boxed{{{gold}}}"), library.parse(output)))


def test_the_table_of_differences_is_true() -> None:
    rows = rows_of_the_page()
    assert len(rows) == 8
    for output, finish, gold, ours, theirs in rows:
        assert score_output("integer", output, finish, Gold(gold)).verdict == ours, output
        assert alone(output, gold) == (theirs == "correct"), output
        assert (ours == "correct") != (theirs == "correct"), output


def test_both_agree_where_an_answer_is_plain() -> None:
    outputs = [
        "\\boxed{70}",
        "so \\boxed{070}.",
        "\\boxed{71}",
        "\\boxed{m+n=70}",
        "\\boxed{70^\\circ}",
        "\\boxed{7",
    ]
    opinions = second_opinions([(output, "70") for output in outputs])
    for output, opinion in zip(outputs, opinions, strict=True):
        ours = score_output("integer", output, "stop", Gold(70)).verdict == "correct"
        assert opinion.is_correct is ours, output
