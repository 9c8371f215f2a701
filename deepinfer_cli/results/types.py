"""What a finished request looks like from here, and what is remembered of its row meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from deepinfer_cli.constraints.types import CheckSpec
from deepinfer_cli.requests.types import RowIdentity


class TokenScore(Protocol):
    """One position's log-probabilities, of the model's own distribution (request.h: TokenLogprobs)."""

    @property
    def token(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def rank(self) -> int: ...
    @property
    def top(self) -> Sequence[tuple[int, float]]: ...


class Sample(Protocol):
    """request.h: SampleResult."""

    @property
    def tokens(self) -> Sequence[int]: ...
    @property
    def text(self) -> str: ...
    @property
    def finish_reason(self) -> str: ...
    @property
    def stop_string(self) -> str: ...
    @property
    def stop_token(self) -> int: ...
    @property
    def constraint_state(self) -> str: ...
    @property
    def token_times(self) -> Sequence[float]: ...
    @property
    def logprobs(self) -> Sequence[TokenScore]: ...


class FinishedRequest(Protocol):
    """request.h: Completion."""

    @property
    def id(self) -> int: ...
    @property
    def samples(self) -> Sequence[Sample]: ...
    @property
    def prompt_logprobs(self) -> Sequence[TokenScore]: ...
    @property
    def error(self) -> str: ...
    @property
    def error_retryable(self) -> bool: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_cached_tokens(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def queue_seconds(self) -> float: ...
    @property
    def first_token_seconds(self) -> float: ...
    @property
    def total_seconds(self) -> float: ...


@dataclass(frozen=True, slots=True)
class OpenRow:
    """A row between submission and result: all that its output row needs of it, and nothing large."""

    identity: RowIdentity
    seed: int
    warnings: tuple[str, ...] = ()
    is_chat: bool = False  # a message comes back in the OpenAI shape, not a text
    wants_logprobs: bool = False
    wants_prompt_logprobs: bool = False
    wants_token_ids: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    ordinal: int = 0  # place in the output
    check: CheckSpec | None = None  # what a finished text is validated against; None without a constraint
    not_enforced: tuple[str, ...] = ()  # under schema_best_effort: JSON pointers of keywords left out


@dataclass(frozen=True, slots=True)
class RowStyle:
    """The run's side of every output row."""

    file_names: tuple[str, ...]  # rows say their source when there are several
    settings_id: str  # 16 hex digits, explained in OUT.run.json
    model_name: str
    timing: bool = False
