r"""Answers that are expressions (math500): the last complete box, equal as text after simplification.

Equal spellings are right; another form of an equal value (`\frac12`, `0.5`) is right when both are numbers.
What needs algebra is left to the second opinion, which can be made to decide (scoring/second_opinion.py).
"""

from __future__ import annotations

import re
from typing import Final

from deepinfer_cli.eval.scoring.boxed import last_box
from deepinfer_cli.eval.scoring.latex import WORD, simplify
from deepinfer_cli.eval.scoring.number import parse_number
from deepinfer_cli.eval.scoring.types import Answer, Gold, Scored, missing

_FRAC: Final = re.compile(r"\\[dt]frac(?![a-zA-Z])")
_SHORT_FRAC: Final = re.compile(r"\\frac([0-9])([0-9])")
_SHORT_ROOT: Final = re.compile(r"\\sqrt([0-9a-z])")
_VARIABLE: Final = re.compile(r"[a-zA-Z](?:_[0-9a-z])?=")


def canonical(text: str) -> str:
    """One spelling for texts that differ in spacing, style and shorthand only."""
    text = re.sub(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}", r"\1", text)
    text = simplify(text).replace(" ", "").replace(WORD, "")
    text = _SHORT_FRAC.sub(r"\\frac{\1}{\2}", _FRAC.sub(r"\\frac", text))
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    match = _VARIABLE.match(text)
    text = text[match.end() :] if match else text
    number = parse_number(text)
    return text if number is None else str(number)


def score_math(answer: Answer, gold: Gold) -> Scored:
    box = last_box(answer.text)
    if box is None:
        return missing(answer, "no box")
    if not box.is_closed:
        return missing(answer, "the last box is not closed")
    span = (box.start, box.end)
    if not box.content:
        return Scored("no_answer", None, span, "the last box is empty")
    extracted = canonical(box.content)
    return Scored("correct" if extracted == canonical(str(gold.answer)) else "wrong", extracted, span)
