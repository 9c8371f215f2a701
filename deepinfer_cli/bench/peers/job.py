"""Work that an engine gets in a comparison, and what it reports; both cross a pipe as JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Job:
    """Requests that are all there at the start, answered greedily by at most `max_tokens`."""

    prompts: Sequence[Sequence[int]]  # token ids
    max_tokens: int
    concurrency: int  # requests in flight at once
    stop_token_ids: Sequence[int] = ()  # an answer ends with one of these; none = exactly `max_tokens`


@dataclass(frozen=True, slots=True)
class JobCost:
    """What a job took. `num_output` are the tokens that were really made, request by request, one that
    ended an answer included."""

    wall_seconds: float
    cpu_seconds: float | None  # of the peer's process; None where it runs elsewhere
    num_output: Sequence[int]


class JobRunner(Protocol):
    """An engine with a model loaded."""

    def describe(self) -> str: ...

    def run(self, job: Job) -> JobCost: ...
