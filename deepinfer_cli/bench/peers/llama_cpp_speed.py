"""llama.cpp under the workloads."""

from __future__ import annotations

from pathlib import Path

from deepinfer_cli.bench.peers.llama_cpp import LlamaCpp
from deepinfer_cli.bench.workloads import Cost, Stopwatch, Workload, token_at


class LlamaCppSpeed:
    def __init__(self, model: Path, num_threads: int) -> None:
        self._model, self._num_threads = model, num_threads
        self._engine: LlamaCpp | None = None
        self._shape: tuple[int, int] = (0, 0)  # sequences, tokens each
        self._is_warm = False

    def describe(self) -> str:
        engine = self._context(1, 576)
        return f"{engine.library.name}: {engine.system_info()}"

    def _context(self, num_seqs: int, num_ctx: int) -> LlamaCpp:
        """A context for this many sequences; contexts are costly, so the last one is kept."""
        if self._engine is None or self._shape != (num_seqs, num_ctx):
            if self._engine is not None:
                self._engine.close()
            self._engine = LlamaCpp(
                self._model, num_threads=self._num_threads, num_ctx=num_ctx, num_seqs=num_seqs, batch=512
            )
            self._shape, self._is_warm = (num_seqs, num_ctx), False
        return self._engine

    def run(self, workload: Workload) -> Cost:
        engine = self._context(workload.batch, 576 if workload.is_prefill else 256)
        if workload.is_prefill:
            engine.clear()
            count = workload.num_tokens
            rows = [(token_at(0, p), p, 0, p == count - 1) for p in range(count)]
            watch = Stopwatch()
            engine.decode(rows)
            return watch.cost()
        if not self._is_warm:
            for sequence in range(workload.batch):
                engine.decode([(token_at(sequence, p), p, sequence, False) for p in range(workload.context)])
            self._is_warm = True
        engine.forget(workload.context)
        watch = Stopwatch()
        for step in range(workload.num_tokens):
            at = workload.context + step
            engine.decode([(token_at(s, at), at, s, True) for s in range(workload.batch)])
        return watch.cost()
