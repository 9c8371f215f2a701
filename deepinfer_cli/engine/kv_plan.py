"""How many KV blocks a run gets: from what the rows can use, what was asked for, and what memory is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from deepinfer_cli.engine.memory import MemoryPlan, refuse
from deepinfer_cli.errors import EXIT_REFUSED, ResourceError

# Unless asked otherwise, room for this many tokens of every sequence that runs at once; longer ones share,
# and are preempted when they do not fit. More would only keep old prefixes, and resident memory would grow.
TYPICAL_TOKENS = 1024
FREE_SHARE = 0.5  # of the memory that is available when the weights are in


class CacheGroup(Protocol):
    """kv_cache.h: CacheGroupSpec."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...  # "paged" or "sequence"
    @property
    def block_tokens(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class KvPlan:
    num_blocks: list[int]  # per cache group
    num_bytes: int
    num_tokens: int  # that fit into the paged groups

    def __str__(self) -> str:
        return f"{self.num_tokens:,} tokens in {self.num_bytes / 2**20:,.0f} MiB"


def plan_blocks(
    groups: Sequence[CacheGroup],
    *,
    max_context: int,
    max_num_seqs: int,
    budget_bytes: int,
    free_bytes: int,
    memory: MemoryPlan | None = None,
) -> KvPlan:
    """budget_bytes: what the user asked for, 0 = decide. free_bytes: 0 = unknown. memory: the plan of
    --max-memory, which bounds both."""

    def blocks(tokens_per_sequence: int, num_sequences: int) -> list[int]:
        return [
            num_sequences * (-(-tokens_per_sequence // g.block_tokens) if g.kind == "paged" else 1)
            for g in groups
        ]

    def size(counts: Sequence[int]) -> int:
        return sum(count * g.block_bytes for count, g in zip(counts, groups, strict=True))

    least = blocks(max_context, 1)
    most = blocks(max_context, max_num_seqs)
    if memory is not None and max(size(least), budget_bytes) > memory.kv_bytes:
        what = f"the KV cache of one sequence of {max_context:,} tokens"
        if budget_bytes > memory.kv_bytes:
            what = "the kv_cache_bytes that were asked for"
        raise refuse(memory, max(size(least), budget_bytes), what)
    limit = budget_bytes or int(free_bytes * FREE_SHARE) or size(most)
    if memory is not None:
        limit = min(limit, memory.kv_bytes)
    if size(least) > limit:
        given = "kv_cache_bytes allows" if budget_bytes else "half of the free memory is"
        raise ResourceError(
            f"the KV cache of one sequence of {max_context:,} tokens needs {size(least):,} bytes, but "
            f"{given} {limit:,}",
            "lower --max-model-len, or choose a smaller --kv-dtype",
            exit_code=EXIT_REFUSED,
        )
    wanted = most if budget_bytes else blocks(min(max_context, TYPICAL_TOKENS), max_num_seqs)
    counts = [max(a, b) for a, b in zip(wanted, least, strict=True)]
    if size(counts) > limit:
        share = limit / size(counts)
        counts = [max(int(c * share), m) for c, m in zip(counts, least, strict=True)]
    paged = [c * g.block_tokens for c, g in zip(counts, groups, strict=True) if g.kind == "paged"]
    return KvPlan(counts, size(counts), min(paged, default=max_context * max_num_seqs))
