"""This project's engine under the workloads: through its public surface, sampling and text included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deepinfer_cli import _native as native
from deepinfer_cli.bench.workloads import Cost, Stopwatch, Workload, token_at
from deepinfer_cli.errors import EngineError

_MAX_CONTEXT = 1024
_MAX_SEQS = 64


class DeepInferSpeed:
    def __init__(self, model: Path, num_threads: int, precision: str) -> None:
        self._pool = native.ThreadPool(num_threads)
        self._executor = native.CpuExecutor(
            native.open_tensor_file(str(model)), self._pool, precision=precision, kv_dtype="f16"
        )
        vocab_size = self._executor.vocab_size
        table = native.TokenTable([b" "] * vocab_size, [False] * vocab_size)
        num_tokens = _MAX_SEQS * 256
        num_blocks = [-(-num_tokens // group.block_tokens) for group in self._executor.cache_groups]
        self._engine = native.Engine(
            self._executor, self._pool, table, num_blocks=num_blocks, max_context=_MAX_CONTEXT
        )
        self._num_requests = 0
        self._precision = precision

    def describe(self) -> str:
        info: dict[str, Any] = self._executor.info
        return f"precision {self._precision}, {info}"

    def _complete(self, prompts: list[list[int]], num_tokens: int) -> None:
        """Greedy continuations of exactly `num_tokens` tokens."""
        sampling = native.SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
        for prompt in prompts:
            self._num_requests += 1
            if not self._engine.try_submit(native.Request(self._num_requests, prompt, sampling)):
                raise EngineError("the engine's queue is full")
        num_left = len(prompts)
        while num_left:
            for completion in self._engine.poll(num_left, 60.0):
                num_left -= 1
                if completion.error:
                    raise EngineError(completion.error)

    def run(self, workload: Workload) -> Cost:
        if workload.is_prefill:
            # A prompt never seen before, so that nothing comes from the prefix cache; one token follows it.
            self._num_requests += 1
            prompt = [token_at(self._num_requests * 37, p) for p in range(workload.num_tokens)]
            watch = Stopwatch()
            self._complete([prompt], 1)
            return watch.cost()
        # Whole blocks of context come from the prefix cache, so a step computes one token per sequence from
        # the first step on. The context is put there outside the clock.
        contexts = [[token_at(s, p) for p in range(workload.context + 1)] for s in range(workload.batch)]
        self._complete(contexts, 1)
        watch = Stopwatch()
        self._complete(contexts, workload.num_tokens)
        return watch.cost()
