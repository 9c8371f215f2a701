"""Pieces of work that every engine can be given, and what one run of them cost."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True)
class Workload:
    name: str
    batch: int  # sequences
    context: int  # tokens in the cache of each sequence before the clock starts
    num_tokens: int  # tokens computed per sequence while it runs
    is_prefill: bool  # all of them at once, or one per step

    @property
    def total_tokens(self) -> int:
        return self.batch * self.num_tokens


WORKLOADS: Final = {
    w.name: w
    for w in (
        Workload("prefill-512", batch=1, context=0, num_tokens=512, is_prefill=True),
        Workload("decode-1", batch=1, context=128, num_tokens=64, is_prefill=False),
        Workload("decode-8", batch=8, context=128, num_tokens=24, is_prefill=False),
        Workload("decode-32", batch=32, context=128, num_tokens=16, is_prefill=False),
        Workload("decode-64", batch=64, context=128, num_tokens=16, is_prefill=False),
    )
}


@dataclass(frozen=True)
class Cost:
    cpu_seconds: float  # of the whole process, all threads
    wall_seconds: float


class Stopwatch:
    """Process CPU and wall time since it was made."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def cost(self) -> Cost:
        return Cost(time.process_time() - self._cpu, time.perf_counter() - self._wall)


class Peer(Protocol):
    """An engine with a model loaded."""

    def describe(self) -> str: ...

    def run(self, workload: Workload) -> Cost:
        """Prepares the context outside the clock, then does the work."""
        ...


def token_at(sequence: int, position: int) -> int:
    """An arbitrary valid token: the same work for every engine, no two sequences alike."""
    return 100 + (sequence * 131 + position * 7919) % 40000
