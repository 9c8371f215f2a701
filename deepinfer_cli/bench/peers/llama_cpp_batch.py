"""llama.cpp under a job: continuous batching through its C interface, as its server does it, without HTTP.

Every step decodes one token of each running request and fills the batch up with prompts; a finished request
gives its place to the next one at once. Sampling is llama.cpp's own greedy sampler.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from deepinfer_cli.bench.peers.job import Job, JobCost
from deepinfer_cli.bench.peers.llama_cpp import LlamaCpp

BATCH = 512  # tokens of one step, as this project's engine has it by default


@dataclass(slots=True)
class _Slot:
    request: int
    prompt: list[int]
    num_computed: int = 0
    made: list[int] = field(default_factory=list)

    @property
    def is_decoding(self) -> bool:
        return self.num_computed >= len(self.prompt)


class LlamaCppBatch:
    def __init__(self, model: Path, num_threads: int) -> None:
        self._model, self._num_threads = model, num_threads
        self._engine: LlamaCpp | None = None
        self._shape = (0, 0)  # sequences, tokens of each

    def describe(self) -> str:
        engine = self._context(1, 256)
        return f"{engine.library.name}: {engine.system_info()}"

    def _context(self, num_seqs: int, num_ctx: int) -> LlamaCpp:
        """A context for this many sequences; contexts are costly, so the last one is kept."""
        if self._engine is None or self._shape[0] != num_seqs or self._shape[1] < num_ctx:
            if self._engine is not None:
                self._engine.close()
            self._engine = LlamaCpp(
                self._model,
                num_threads=self._num_threads,
                num_ctx=num_ctx,
                num_seqs=num_seqs,
                batch=max(BATCH, num_seqs),
            )
            self._shape = (num_seqs, num_ctx)
        return self._engine

    def run(self, job: Job) -> JobCost:
        longest = max(len(prompt) for prompt in job.prompts) + job.max_tokens
        engine = self._context(min(job.concurrency, len(job.prompts)), -(-longest // 256) * 256)
        engine.clear()
        wall, cpu = time.perf_counter(), time.process_time()
        counts = _Flight(engine, job, self._shape[0]).run()
        return JobCost(time.perf_counter() - wall, time.process_time() - cpu, counts)


class _Flight:
    def __init__(self, engine: LlamaCpp, job: Job, num_slots: int) -> None:
        self._engine = engine
        self._job = job
        self._slots: list[_Slot | None] = [None] * num_slots
        self._waiting = deque(range(len(job.prompts)))
        self._counts = [0] * len(job.prompts)

    def run(self) -> list[int]:
        while self._fill() or any(self._slots):
            self._step()
        return self._counts

    def _fill(self) -> bool:
        for i, slot in enumerate(self._slots):
            if slot is None and self._waiting:
                request = self._waiting.popleft()
                self._slots[i] = _Slot(request, list(self._job.prompts[request]))
        return bool(self._waiting)

    def _step(self) -> None:
        rows: list[tuple[int, int, int, bool]] = []
        sampled: list[tuple[int, int]] = []  # (row, slot)
        for i, slot in enumerate(self._slots):
            if slot is not None and slot.is_decoding:
                sampled.append((len(rows), i))
                rows.append((slot.made[-1], len(slot.prompt) + len(slot.made) - 1, i, True))
        for i, slot in enumerate(self._slots):
            if slot is None or slot.is_decoding:
                continue
            end = min(len(slot.prompt), slot.num_computed + max(BATCH, len(self._slots)) - len(rows))
            for at in range(slot.num_computed, end):
                is_last = at == len(slot.prompt) - 1
                if is_last:
                    sampled.append((len(rows), i))
                rows.append((slot.prompt[at], at, i, is_last))
            slot.num_computed = end
        self._engine.decode(rows)
        for row, i in sampled:
            self._take(i, self._engine.sample_greedy(row))

    def _take(self, i: int, token: int) -> None:
        slot = self._slots[i]
        assert slot is not None
        slot.made.append(token)
        if len(slot.made) == self._job.max_tokens or token in self._job.stop_token_ids:
            self._counts[slot.request] = len(slot.made)
            self._engine.forget_sequence(i)
            self._slots[i] = None
