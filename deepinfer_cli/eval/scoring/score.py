"""One output to one verdict: the only entry that the rest of the program uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from deepinfer_cli.eval.scoring.choice import gold_letter, score_choice
from deepinfer_cli.eval.scoring.exact import score_exact, score_exact_folded
from deepinfer_cli.eval.scoring.integer import gold_integer, score_integer
from deepinfer_cli.eval.scoring.json_answer import score_json
from deepinfer_cli.eval.scoring.math_text import score_math
from deepinfer_cli.eval.scoring.number import gold_number, score_number
from deepinfer_cli.eval.scoring.reasoning import strip_reasoning
from deepinfer_cli.eval.scoring.types import Answer, Gold, Scored, Scorer

SCORERS: Final[Mapping[str, Scorer]] = MappingProxyType(
    {
        "integer": score_integer,
        "number": score_number,
        "choice": score_choice,
        "exact": score_exact,
        "text": score_exact_folded,
        "json": score_json,
        "math": score_math,
    }
)
# Decided by a model, not by a rule (judge.py). Until it has spoken, such samples are unjudged.
JUDGE_SCORER: Final = "judge"

_CHECKS: Final[Mapping[str, Callable[[Gold], Any]]] = MappingProxyType(
    {
        "integer": lambda gold: gold_integer(gold.answer),
        "number": lambda gold: gold_number(gold.answer),
        "choice": lambda gold: gold_letter(gold.answer, gold.num_choices),
    }
)


def check_gold(scorer: str, gold: Gold) -> None:
    """ValueError when the gold answer is not one that `scorer` could ever match."""
    if scorer in _CHECKS:
        _CHECKS[scorer](gold)
    elif scorer == "json" and gold.answer is None and gold.schema is None:
        raise ValueError("scorer json needs an answer or a schema")
    elif scorer != "json" and (gold.answer is None or not str(gold.answer).strip()):
        raise ValueError("the answer is empty")


def score_output(scorer: str, output: str, finish_reason: str, gold: Gold) -> Scored:
    """The verdict of `scorer` on what a model wrote. A judged sample counts as unjudged here."""
    answer = Answer(strip_reasoning(output), was_cut=finish_reason == "length")
    if scorer != JUDGE_SCORER:
        return SCORERS[scorer](answer, gold)
    extracted = answer.text.strip()
    if not extracted or answer.was_cut:
        return Scored("truncated" if answer.was_cut else "no_answer", note="nothing to judge")
    start = answer.text.index(extracted)
    return Scored("unjudged", extracted, (start, start + len(extracted)))
