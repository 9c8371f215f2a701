"""Runs requests through the native engine: what tests of numbers need, in a few lines each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deepinfer_cli import _native


@dataclass(frozen=True)
class Setup:
    """How to run, never what: no field may change a result except precision, kv_dtype and isa."""

    precision: str = "fp32"
    kv_dtype: str = "f32"
    isa: str | None = None  # None = the best of this CPU
    num_threads: int = 2
    max_num_seqs: int = 64
    max_step_tokens: int = 512
    prefill_chunk: int = 512
    prefix_cache: bool = True
    num_tokens_cached: int = 16384  # size of the block pool
    preempt_every: int = 0  # steps between forced preemptions; 0 = none


@dataclass(frozen=True)
class Work:
    """One request: sampled when max_tokens > 0, and its prompt scored when asked."""

    prompt: tuple[int, ...]
    max_tokens: int = 0
    seed: int = 0
    num_samples: int = 1
    temperature: float = 1.0
    top_logprobs: int = -1
    prompt_logprobs: int = -1
    extra: dict[str, Any] = field(default_factory=dict)  # more SamplingParams


class NativeEngine:
    """One model and one engine. Use as a context manager."""

    def __init__(self, path: Path, setup: Setup) -> None:
        self.setup = setup
        self.pool = _native.ThreadPool(setup.num_threads)
        self.executor = _native.CpuExecutor(
            _native.open_tensor_file(str(path)),
            self.pool,
            precision=setup.precision,
            kv_dtype=setup.kv_dtype,
            isa=setup.isa,
        )
        vocab_size = self.executor.vocab_size
        table = _native.TokenTable([b"<%d>" % i for i in range(vocab_size)], [False] * vocab_size)
        num_blocks = [-(-setup.num_tokens_cached // g.block_tokens) for g in self.executor.cache_groups]
        self.engine = _native.Engine(
            self.executor,
            self.pool,
            table,
            num_blocks=num_blocks,
            max_num_seqs=setup.max_num_seqs,
            max_step_tokens=setup.max_step_tokens,
            prefill_chunk=setup.prefill_chunk,
            prefix_cache=setup.prefix_cache,
            debug_preempt_every=setup.preempt_every,
            debug_checks=True,
        )

    def __enter__(self) -> NativeEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.engine.stop()

    def run(self, works: Sequence[Work], order: Sequence[int] | None = None) -> list[Any]:
        """Completions in the order of `works`; submitted in `order`, as many at once as the engine takes."""
        pending = [self._request(index, works[index]) for index in (order or range(len(works)))]
        return self._drive(pending, len(works))

    def score(self, texts: Iterable[tuple[Sequence[int], int, int]]) -> Iterator[np.ndarray]:
        """For each (tokens, begin, end): [end - begin, vocab] logits predicting tokens begin .. end - 1."""
        for tokens, begin, end in texts:
            rows: dict[int, np.ndarray] = {}

            def keep(position: int, row: memoryview, rows: dict[int, np.ndarray] = rows) -> None:
                rows[position] = np.array(row, dtype=np.float32)

            sampling = _native.SamplingParams(max_tokens=0)
            request = _native.Request(
                0, list(tokens), sampling, score_begin=begin, score_end=end, on_logits=keep
            )
            self._drive([request], 1)
            assert sorted(rows) == list(range(begin, end)), "not every position came"
            yield np.stack([rows[p] for p in range(begin, end)])

    @staticmethod
    def _request(index: int, work: Work) -> _native.Request:
        sampling = _native.SamplingParams(
            max_tokens=work.max_tokens,
            temperature=work.temperature,
            top_logprobs=work.top_logprobs,
            **work.extra,
        )
        return _native.Request(
            index,
            list(work.prompt),
            sampling,
            num_samples=work.num_samples,
            seed=work.seed,
            prompt_logprobs=work.prompt_logprobs,
        )

    def _drive(self, pending: list[_native.Request], num_works: int) -> list[Any]:
        done: dict[int, Any] = {}
        pending = pending[::-1]
        while len(done) < num_works:
            while pending and self.engine.try_submit(pending[-1]):
                pending.pop()
            for completion in self.engine.poll(64, 1.0):
                assert not completion.error, completion.error
                done[completion.id] = completion
        self.engine.check_integrity()
        return [done[index] for index in range(num_works)]


def bits(completion: Any) -> tuple[Any, ...]:
    """Everything of a completion that must not depend on how it was run; floats as their bits."""

    def logprobs(entries: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            (
                e.token,
                np.float32(e.logprob).tobytes(),
                e.rank,
                tuple((token, np.float32(value).tobytes()) for token, value in e.top),
            )
            for e in entries
        )

    samples = tuple(
        (tuple(s.tokens), s.text, s.finish_reason, s.stop_token, s.stop_string, logprobs(s.logprobs))
        for s in completion.samples
    )
    return samples, logprobs(completion.prompt_logprobs)
