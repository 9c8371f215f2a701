"""Small pure parts of the loop: KV plan, fitting prompts, counting."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.engine.counters import Counters, summary
from deepinfer_cli.engine.fit import fit_prompt
from deepinfer_cli.engine.kv_plan import TYPICAL_TOKENS, plan_blocks
from deepinfer_cli.engine.memory import MemoryPlan, bounded_rows, open_bytes, plan_memory
from deepinfer_cli.errors import ResourceError
from deepinfer_cli.requests.types import FieldError, RowError, RowIdentity
from deepinfer_cli.results.writer import MAX_OPEN_BYTES


@dataclass(frozen=True)
class Group:
    name: str = "kv"
    kind: str = "paged"
    block_tokens: int = 32
    block_bytes: int = 1000


def test_plan_has_room_for_typical_rows_and_one_full_context() -> None:
    plan = plan_blocks([Group()], max_context=8192, max_num_seqs=64, budget_bytes=0, free_bytes=10**9)
    assert plan.num_blocks == [64 * TYPICAL_TOKENS // 32]
    alone = plan_blocks([Group()], max_context=8192, max_num_seqs=1, budget_bytes=0, free_bytes=10**9)
    assert alone.num_blocks == [8192 // 32] and alone.num_tokens == 8192


def test_plan_shrinks_to_what_is_free_but_never_below_one_context() -> None:
    plan = plan_blocks([Group()], max_context=1024, max_num_seqs=64, budget_bytes=0, free_bytes=1_000_000)
    assert plan.num_bytes <= 500_000
    with pytest.raises(ResourceError, match="32,000 bytes") as caught:
        plan_blocks([Group()], max_context=1024, max_num_seqs=64, budget_bytes=31_000, free_bytes=10**9)
    assert "--max-model-len" in (caught.value.hint or "")


def test_plan_uses_what_was_asked_for() -> None:
    plan = plan_blocks([Group()], max_context=1024, max_num_seqs=64, budget_bytes=100_000, free_bytes=0)
    assert plan.num_blocks == [100]
    roomy = plan_blocks([Group()], max_context=1024, max_num_seqs=2, budget_bytes=10**12, free_bytes=0)
    assert roomy.num_blocks == [64]  # more than all sequences can use is not taken


def memory(limit: int, held: int = 150 << 20, weights: int = 100 << 20, row: int = 1 << 20) -> MemoryPlan:
    return plan_memory(limit, held=held, weights=weights, max_row_bytes=row)


def test_a_bound_on_memory_is_shared_out() -> None:
    plan = memory(1 << 30)
    parts = (plan.weights, plan.program, plan.rows, plan.buffers, plan.kv_bytes)
    assert sum(parts) == 1 << 30 and min(parts) > 0
    assert plan.program == 50 << 20 and plan.rows == (64 << 20) + 4 * (1 << 20)
    group = Group(block_bytes=1 << 20)
    kv = plan_blocks(
        [group], max_context=1024, max_num_seqs=64, budget_bytes=0, free_bytes=1 << 50, memory=plan
    )
    assert plan.kv_bytes - (1 << 20) < kv.num_bytes <= plan.kv_bytes


def test_a_bound_on_memory_that_cannot_hold_is_refused_with_its_plan() -> None:
    plan = memory(256 << 20)
    group = Group(block_bytes=1 << 20)
    with pytest.raises(ResourceError) as caught:
        plan_blocks(
            [group], max_context=8192, max_num_seqs=4, budget_bytes=0, free_bytes=1 << 50, memory=plan
        )
    error = caught.value
    assert error.exit_code == 2
    assert "weights 100 MiB, program 50 MiB" in error.message and "256 MiB are needed" in error.message
    assert error.hint is not None
    least = int(error.hint.split()[1].removesuffix("MiB")) << 20
    enough = memory(least, row=open_bytes(least) // 4)
    plan_blocks([group], max_context=8192, max_num_seqs=4, budget_bytes=0, free_bytes=1 << 50, memory=enough)
    with pytest.raises(ResourceError, match="kv_cache_bytes"):
        plan_blocks(
            [group],
            max_context=32,
            max_num_seqs=4,
            budget_bytes=1 << 40,
            free_bytes=0,
            memory=memory(1 << 30),
        )


def test_rows_are_bounded_by_the_bound_on_memory() -> None:
    assert open_bytes(0) == open_bytes(1 << 40) == MAX_OPEN_BYTES
    assert open_bytes(1) == 8 << 20
    config = RunConfig().with_values({"max_memory": 512 << 20}, Origin("cli"))
    assert bounded_rows(config).rows.max_row_bytes == 8 << 20
    asked = config.with_values({"max_row_bytes": 1 << 29}, Origin("cli"))
    assert bounded_rows(asked) is asked


def test_plan_of_several_groups() -> None:
    groups = [Group(), Group("window", "sequence", 0, 5000), Group("c", "paged", 128, 100)]
    plan = plan_blocks(groups, max_context=1000, max_num_seqs=4, budget_bytes=0, free_bytes=10**9)
    assert plan.num_blocks == [4 * 32, 4, 4 * 8]
    assert plan.num_bytes == 128 * 1000 + 4 * 5000 + 32 * 100


@pytest.mark.parametrize(
    ("count", "max_tokens", "fits"), [(9, 5, True), (10, 5, False), (10, 0, True), (11, 0, False)]
)
def test_prompt_plus_one_must_fit(count: int, max_tokens: int, fits: bool) -> None:
    ids = list(range(count))
    if fits:
        assert fit_prompt(ids, num_bos=0, max_tokens=max_tokens, limit=10, policy="error") == (ids, False)
        return
    with pytest.raises(FieldError) as caught:
        fit_prompt(ids, num_bos=0, max_tokens=max_tokens, limit=10, policy="error")
    assert caught.value.error.code == "context_overflow"


@pytest.mark.parametrize(
    ("policy", "max_tokens", "wanted"),
    [
        ("left", 1, [0, *range(12, 20)]),
        ("left", 4, [0, *range(15, 20)]),
        ("left", 500, [0, *range(16, 20)]),  # half of the context stays for the prompt
        ("left", None, [0, *range(12, 20)]),
        ("middle", 1, [0, 1, 2, 3, 4, 16, 17, 18, 19]),
    ],
)
def test_truncation_keeps_bos_and_leaves_room(policy: str, max_tokens: int | None, wanted: list[int]) -> None:
    ids, cut = fit_prompt(list(range(20)), num_bos=1, max_tokens=max_tokens, limit=10, policy=policy)
    assert cut and ids == wanted
    assert len(ids) + 1 <= 10


@pytest.mark.parametrize("policy", ["left", "middle"])
def test_truncation_at_the_smallest_limits(policy: str) -> None:
    for limit in range(2, 9):
        ids, _ = fit_prompt(list(range(30)), num_bos=1, max_tokens=3, limit=limit, policy=policy)
        assert 1 <= len(ids) < limit and ids[0] == 0


def test_summary_names_the_first_failures() -> None:
    counters = Counters(num_read=10, num_ok=2)
    for line in range(1, 9):
        identity = RowIdentity(line, line, 0, None)
        counters.add_failure(identity, RowError("bad_json" if line % 2 else "bad_param", "x" * 300), ("a",))
    lines = summary(counters, 2.0, damaged=1, ran=True)
    assert lines[0] == "10 rows: 2 ok, 8 failed (4 bad_json, 4 bad_param), 1 inputs ended early"
    assert sum("line " in line for line in lines) == 5
    assert lines[-1] == "  ... and 3 more"
    assert all(len(line) < 250 for line in lines)
