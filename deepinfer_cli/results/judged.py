"""What became of a text that was made under a constraint: complete and valid, or why not.

A row is `ok` when every one of its outputs is complete and was found valid by code that is not the engine's.
Otherwise it is an error row with the code of its first such output; all texts stay in it, as they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deepinfer_cli.requests.types import RowError
from deepinfer_cli.results.types import OpenRow, Sample

if TYPE_CHECKING:
    from deepinfer_cli.constraints.validate import Verdict

NOT_ENFORCED = "schema_not_enforced"  # warnings
TIMEOUT = "validation_timeout"


@dataclass(frozen=True, slots=True)
class Judged:
    """One output."""

    parsed: str | None = None  # one line of JSON: the text's value, under JSON constraints
    error: RowError | None = None
    is_unchecked: bool = False  # the check took too long: nothing is known


def is_checked(sample: Sample) -> bool:
    """Whether its text is one to validate: neither length nor a failure ended it."""
    return sample.finish_reason == "stop" and sample.constraint_state != "not_started"


def judge(row: OpenRow, sample: Sample, verdict: Verdict | None) -> Judged:
    """`verdict`: of a sample that is_checked()."""
    if sample.finish_reason not in ("stop", "length", "context"):
        return Judged()  # the row has an error of its own
    if sample.constraint_state == "not_started":
        why = "generation ended without the constraint ever becoming active"
        return Judged(error=RowError("constraint_not_applied", why))
    if verdict is None:
        return Judged(error=_truncated(sample, _length_words(sample)))
    match verdict.outcome:
        case "valid":
            return Judged(parsed=verdict.parsed)
        case "timeout":
            return Judged(is_unchecked=True)
        case "unchecked":
            why = f"the finished text could not be checked: {verdict.message}"
            return Judged(error=RowError("engine_error", why, retryable=True))
    if sample.stop_string:
        return Judged(error=_truncated(sample, "a stop string ended the text"))
    if sample.stop_token in row.stop_token_ids:
        return Judged(error=_truncated(sample, f"the stop token {sample.stop_token} ended the text"))
    if row.not_enforced:
        why = f"the text breaks what was not enforced: {verdict.message}"
        return Judged(error=RowError("constraint_violated", why))
    why = f"the finished text breaks its constraint, which is a defect of deepinfer: {verdict.message}"
    return Judged(error=RowError("engine_error", why))


def _length_words(sample: Sample) -> str:
    if sample.finish_reason == "context":
        return "the context was full"
    return f"the text ended at {len(sample.tokens):,} tokens (max_tokens)"


def _truncated(sample: Sample, how: str) -> RowError:
    return RowError("constraint_truncated", f"{how} before the constraint was complete")


def row_error(judged: Sequence[Judged]) -> RowError | None:
    """Of the first output that has one."""
    for number, output in enumerate(judged, 1):
        if output.error is not None:
            if len(judged) == 1:
                return output.error
            return replace(output.error, message=f"output {number} of {len(judged)}: {output.error.message}")
    return None


def row_warnings(row: OpenRow, judged: Sequence[Judged]) -> tuple[str, ...]:
    found = list(row.warnings)
    if row.not_enforced:
        found.append(NOT_ENFORCED)
    if any(output.is_unchecked for output in judged):
        found.append(TIMEOUT)
    return tuple(found)
