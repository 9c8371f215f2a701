"""Integer answers, exactly: 70 is 070, 70.0 and m+n=70, but not 140/2 and not "3 or 70"."""

from __future__ import annotations

import re
from typing import Any, Final

from deepinfer_cli.eval.scoring.boxed import last_box
from deepinfer_cli.eval.scoring.latex import right_side, simplify
from deepinfer_cli.eval.scoring.types import Answer, Gold, Scored, missing

# Digits, or groups of three behind commas or spaces; a fraction of zeros says the same number.
_INTEGER: Final = re.compile(r"([-+]?) ?([0-9]+|[0-9]{1,3}(?:[ ,][0-9]{3})+)(?:\.0+)?")
_MAX_DIGITS: Final = 4000  # beyond what Python converts without being asked to


def parse_integer(text: str) -> int | None:
    """The integer that `text` spells, or None."""
    match = _INTEGER.fullmatch(right_side(simplify(text)))
    if match is None or len(match[2]) > _MAX_DIGITS:
        return None
    value = int(re.sub(r"[ ,]", "", match[2]))
    return -value if match[1] == "-" else value


def gold_integer(value: Any) -> int:
    """The integer of a gold answer: an integer, or its digits. ValueError names what it is instead."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?[0-9]{1,4000}\s*", value):
        return int(value)
    raise ValueError(f"answer {value!r} is not an integer")


def score_integer(answer: Answer, gold: Gold) -> Scored:
    """The last complete box, compared as integers."""
    box = last_box(answer.text)
    if box is None:
        return missing(answer, "no box")
    if not box.is_closed:
        return missing(answer, "the last box is not closed")
    span = (box.start, box.end)
    if not box.content:
        return Scored("no_answer", None, span, "the last box is empty")
    value = parse_integer(box.content)
    if value is None:
        return Scored("wrong", box.content, span, "not an integer")
    return Scored("correct" if value == gold_integer(gold.answer) else "wrong", str(value), span)
