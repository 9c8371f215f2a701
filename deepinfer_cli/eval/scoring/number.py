"""Decimal answers (gsm8k): the last complete box as an exact fraction; 18, 18.00, $18 and 36/2 are one."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Final

from deepinfer_cli.eval.scoring.boxed import last_box
from deepinfer_cli.eval.scoring.latex import right_side, simplify
from deepinfer_cli.eval.scoring.types import Answer, Gold, Scored, missing

_DECIMAL: Final = r"(?:[0-9]+|[0-9]{1,3}(?:[ ,][0-9]{3})+)(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER: Final = re.compile(rf"([-+]?) ?({_DECIMAL})")
_SLASH: Final = re.compile(rf"([-+]?) ?({_DECIMAL}) ?/ ?({_DECIMAL})")
_FRAC: Final = re.compile(r"([-+]?) ?\\[dt]?frac ?\{ ?(-?[0-9]+) ?\} ?\{ ?(-?[0-9]+) ?\}")
_SHORT_FRAC: Final = re.compile(r"([-+]?) ?\\[dt]?frac ?([0-9]) ?([0-9])")
_MAX_CHARS: Final = 400


def parse_number(text: str) -> Fraction | None:
    """The rational number that `text` spells, or None. Nothing but one division is computed."""
    text = right_side(simplify(text))
    if len(text) > _MAX_CHARS:
        return None
    if match := _NUMBER.fullmatch(text):
        value = _decimal(match[2])
    elif match := (_SLASH.fullmatch(text) or _FRAC.fullmatch(text) or _SHORT_FRAC.fullmatch(text)):
        below = _decimal(match[3])
        if below == 0:
            return None
        value = _decimal(match[2]) / below
    else:
        return None
    return -value if match[1] == "-" else value


def _decimal(text: str) -> Fraction:
    return Fraction(re.sub(r"[ ,]", "", text))


def gold_number(value: Any) -> Fraction:
    """The number of a gold answer. ValueError names what it is instead."""
    number = parse_number(str(value)) if isinstance(value, str | int | float) else None
    if number is None or isinstance(value, bool):
        raise ValueError(f"answer {value!r} is not a number")
    return number


def score_number(answer: Answer, gold: Gold) -> Scored:
    box = last_box(answer.text)
    if box is None:
        return missing(answer, "no box")
    if not box.is_closed:
        return missing(answer, "the last box is not closed")
    span = (box.start, box.end)
    if not box.content:
        return Scored("no_answer", None, span, "the last box is empty")
    value = parse_number(box.content)
    if value is None:
        return Scored("wrong", box.content, span, "not a number")
    return Scored("correct" if value == gold_number(gold.answer) else "wrong", str(value), span)
