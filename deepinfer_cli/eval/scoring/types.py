"""What a scorer is asked and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

# correct and wrong: a complete answer was found. no_answer: none was given. truncated: the token limit came
# before a complete answer. error: the row failed. unjudged: only a judge could tell, and none was asked.
Verdict = Literal["correct", "wrong", "no_answer", "truncated", "error", "unjudged"]
VERDICTS: Final[tuple[Verdict, ...]] = ("correct", "wrong", "no_answer", "truncated", "error", "unjudged")

# Raised with every change of a rule that may change a verdict; stored with each sample.
SCORER_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """One output as the scorer sees it."""

    text: str  # reasoning blanked out at the same length, so that positions stay those of the output
    was_cut: bool  # finish_reason "length": the token limit ended it


@dataclass(frozen=True, slots=True)
class Gold:
    """What is right. `options` are the rest of a problem that a scorer may need."""

    answer: Any  # string or integer; any JSON value for the scorer "json"
    schema: Any = None  # JSON Schema of the answer, for the scorer "json"
    num_choices: int = 0  # letters A.. that count, for the scorer "choice"


@dataclass(frozen=True, slots=True)
class Scored:
    """The verdict on one output and what it rests on."""

    verdict: Verdict
    extracted: str | None = None  # the answer in the scorer's canonical spelling
    span: tuple[int, int] | None = None  # [start, end) of what was read, in characters of the output
    note: str | None = None  # why, where the verdict alone does not tell


class Scorer(Protocol):
    """A rule. Pure: an answer and a gold give one verdict for ever, unless SCORER_VERSION changes."""

    def __call__(self, answer: Answer, gold: Gold) -> Scored: ...


def missing(answer: Answer, note: str | None = None) -> Scored:
    """No complete answer: truncated if the limit cut it, else no answer."""
    return Scored("truncated" if answer.was_cut else "no_answer", note=note)
