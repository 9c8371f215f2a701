"""The whole answer, character by character; only surrounding white space does not count."""

from __future__ import annotations

from deepinfer_cli.eval.scoring.types import Answer, Gold, Scored, missing


def score_exact(answer: Answer, gold: Gold) -> Scored:
    extracted = answer.text.strip()
    if not extracted:
        return missing(answer, "nothing but reasoning or white space")
    start = answer.text.index(extracted)
    span = (start, start + len(extracted))
    if answer.was_cut and extracted != str(gold.answer).strip():
        return Scored("truncated", None, None, "cut off before it was complete")
    right = extracted == str(gold.answer).strip()
    return Scored("correct" if right else "wrong", extracted, span)


def score_exact_folded(answer: Answer, gold: Gold) -> Scored:
    """As score_exact, but case, repeated white space and a final full stop do not count."""
    extracted = answer.text.strip()
    if not extracted:
        return missing(answer, "nothing but reasoning or white space")
    start = answer.text.index(extracted)
    right = _fold(extracted) == _fold(str(gold.answer))
    if answer.was_cut and not right:
        return Scored("truncated", None, None, "cut off before it was complete")
    return Scored("correct" if right else "wrong", _fold(extracted), (start, start + len(extracted)))


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold().rstrip(".!")
