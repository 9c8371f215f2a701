"""The promise on the small model: how rows are run never changes a bit of what they say.

A pairwise cover of batch size, threads, prefill chunk, prefix cache, row order, forced preemption and
numerics (precision with cache type). Every run is compared with the plainest one of the same numerics: one
row at a time, one thread, no prefix cache, whole prompts.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.fixed_texts import load_texts
from tests.support.native_engine import NativeEngine, Setup, Work, bits
from tests.support.pairwise import pairwise_cover

FACTORS = {
    "max_num_seqs": [1, 3, 17, 64],
    "num_threads": [1, 2, 3, 7],
    "prefill_chunk": [1, 16, 512],
    "prefix_cache": [True, False],
    "shuffled": [False, True],
    "preemption": ["none", "every 5 steps", "small pool"],
    "numerics": [
        ("precise", "f16"),
        ("precise", "int8"),
        ("fast", "f16"),
        ("fast", "int8"),
        ("bf16", "bf16"),
        ("fp32", "f32"),
    ],
}
COVER = pairwise_cover(FACTORS)
# Runs with few sequences at once are long, and their results can be compared row by row: fewer rows will do.
NUM_ROWS = {1: 4, 3: 9, 17: 22, 64: 22}
SMALL_POOL = 256  # tokens: the longest request and little more


def works() -> list[Work]:
    """22 rows, 64 sequences: shared prefixes, equal prompts, samples, scored prompts, greedy and not."""
    texts = load_texts()
    result = []
    for index in range(22):
        base = index % 18  # the last four repeat the prompts of the first four
        text = texts[(base % 5) * 9]
        length = 34 + 5 * (base % 7)  # prefixes of one another, across and inside blocks of 32
        result.append(
            Work(
                prompt=text.tokens[:length],
                max_tokens=4 + index % 4,
                seed=1000 + index,
                num_samples=3 if index < 21 else 1,
                temperature=0.0 if index % 4 == 0 else 1.0,
                top_logprobs=3,
                prompt_logprobs=1 if index % 6 == 5 else -1,
                extra={"top_p": 0.95, "repetition_penalty": 1.1} if index % 3 == 2 else {},
            )
        )
    return result


@pytest.fixture(scope="module")
def plain_results(small_model: Path) -> dict[tuple[str, str], list[tuple]]:
    results = {}
    for precision, kv_dtype in FACTORS["numerics"]:
        setup = Setup(precision, kv_dtype, num_threads=1, max_num_seqs=4, prefix_cache=False)
        with NativeEngine(small_model, setup) as engine:
            # One row in the engine at a time: a row has no neighbour but its own samples.
            results[precision, kv_dtype] = [bits(engine.run([work])[0]) for work in works()]
    return results


@pytest.mark.model
@pytest.mark.parametrize("row", COVER, ids=lambda row: "-".join(str(v) for v in row.values()))
def test_the_way_of_running_never_shows(small_model, plain_results, row):
    precision, kv_dtype = row["numerics"]
    setup = Setup(
        precision,
        kv_dtype,
        num_threads=row["num_threads"],
        max_num_seqs=row["max_num_seqs"],
        prefill_chunk=row["prefill_chunk"],
        prefix_cache=row["prefix_cache"],
        num_tokens_cached=SMALL_POOL if row["preemption"] == "small pool" else 16384,
        preempt_every=5 if row["preemption"] == "every 5 steps" else 0,
    )
    rows = works()[: NUM_ROWS[setup.max_num_seqs]]
    order = list(range(len(rows)))
    if row["shuffled"]:
        random.Random(11).shuffle(order)
    with NativeEngine(small_model, setup) as engine:
        completions = engine.run(rows, order)
        stats = engine.engine.stats()
    if row["preemption"] == "every 5 steps":
        assert stats["num_preemptions"] > 0
    expected = plain_results[precision, kv_dtype]
    differing = [i for i, c in enumerate(completions) if bits(c) != expected[i]]
    assert not differing


def test_the_rows_are_a_fair_sample():
    rows = works()
    assert sum(w.num_samples for w in rows) == 64
    assert len({w.prompt for w in rows}) < len(rows)  # equal prompts share blocks
    assert any(a.prompt != b.prompt and b.prompt[: len(a.prompt)] == a.prompt for a in rows for b in rows)
