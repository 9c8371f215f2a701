"""Scores windows with one engine, or with two position by position."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.engine.native import NativeEngine, context_limit, logit_divergence
from deepinfer_cli.errors import EngineError
from deepinfer_cli.eval.quality.windows import Window
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.requests.types import SamplingValues
from deepinfer_cli.stats.paired import quantile

# Rows of logits held at once when two models are compared: 64 rows of 130,000 tokens are 33 MB.
ROWS_HELD = 64
_POLL_S = 1.0


@contextmanager
def engine_on(model: LoadedModel, config: RunConfig) -> Iterator[NativeEngine]:
    """A running engine on a loaded model, stopped at the end."""
    engine = NativeEngine(
        model,
        config.engine,
        max_context=context_limit(model, config.engine.max_model_len),
        max_tokens_cap=config.sampling.max_tokens_cap,
    )
    try:
        yield engine
    finally:
        engine.close()


@dataclass(slots=True)
class Likelihood:
    """Sums over scored tokens."""

    num_tokens: int = 0
    num_characters: int = 0
    log_probability: float = 0.0  # nats

    def add(self, log_probabilities: Iterable[float], num_characters: int) -> None:
        values = list(log_probabilities)
        self.num_tokens += len(values)
        self.num_characters += num_characters
        self.log_probability += math.fsum(values)

    @property
    def perplexity(self) -> float:
        return math.exp(-self.log_probability / self.num_tokens)

    @property
    def bits_per_character(self) -> float:
        """Comparable between tokenizers, which perplexity is not."""
        return -self.log_probability / math.log(2) / max(1, self.num_characters)

    def as_json(self) -> dict[str, Any]:
        return {
            "num_tokens": self.num_tokens,
            "perplexity": self.perplexity,
            "bits_per_character": self.bits_per_character,
        }


def likelihoods(engine: NativeEngine, windows: Sequence[Window]) -> dict[str, Likelihood]:
    """By domain, in order of appearance."""
    params = SamplingValues(max_tokens=0, prompt_logprobs=0)
    scores: dict[int, list[float]] = {}
    waiting = [engine.request(i, list(w.token_ids), params, 0) for i, w in enumerate(windows)]
    while len(scores) < len(windows):
        while waiting and engine.try_submit(waiting[0]):
            waiting.pop(0)
        for done in engine.poll(64, _POLL_S):
            _refuse_failure(done)
            scores[done.id] = [score.logprob for score in done.prompt_logprobs]
    found: dict[str, Likelihood] = {}
    for i, window in enumerate(windows):
        found.setdefault(window.domain, Likelihood()).add(scores[i], window.num_characters)
    return found


def _refuse_failure(done: Any) -> None:
    if done.error:
        raise EngineError(f"a window could not be scored: {done.error}")


@dataclass(slots=True)
class Divergence:
    """Position by position, how far a model is from its base."""

    kls: list[float] = field(default_factory=list)  # nats
    num_same_top: int = 0

    def as_json(self) -> dict[str, Any]:
        ordered = sorted(self.kls)
        return {
            "num_positions": len(ordered),
            "kl_mean": math.fsum(ordered) / len(ordered),
            "kl_median": quantile(ordered, 0.5),
            "kl_p99": quantile(ordered, 0.99),
            "kl_max": ordered[-1],
            "top1_agreement": self.num_same_top / len(ordered),
        }


def divergences(base: NativeEngine, other: NativeEngine, windows: Sequence[Window]) -> dict[str, Divergence]:
    """KL(base || other) at every scored position, by domain. Both engines run in this process."""
    found: dict[str, Divergence] = {}
    for window in windows:
        domain = found.setdefault(window.domain, Divergence())
        ids = window.token_ids
        for start in range(1, len(ids), ROWS_HELD):
            positions = range(start, min(start + ROWS_HELD, len(ids)))
            _compare(base, other, ids[: positions.stop], positions, domain)
    return found


def _compare(
    base: NativeEngine, other: NativeEngine, ids: Sequence[int], positions: range, into: Divergence
) -> None:
    rows: dict[int, memoryview] = {}
    _score(base, ids, positions, rows)
    pairs: dict[int, memoryview] = {}
    _score(other, ids, positions, pairs)
    for position in positions:
        kl, base_top, other_top = logit_divergence(rows[position], pairs[position])
        if math.isnan(kl):
            raise EngineError(f"logits that are not finite at position {position}")
        into.kls.append(kl)
        into.num_same_top += base_top == other_top


def _score(engine: NativeEngine, ids: Sequence[int], positions: range, rows: dict[int, memoryview]) -> None:
    request = engine.scoring_request(0, ids, positions, rows.__setitem__)
    while not engine.try_submit(request):
        engine.poll(1, _POLL_S)
    while True:
        for done in engine.poll(1, _POLL_S):
            _refuse_failure(done)
            return
