"""Bytes, operations and least times against counts made by hand."""

from __future__ import annotations

import pytest

from deepinfer_cli.bench.timeline import RequestTrace
from deepinfer_cli.bench.work import Limits, Matrix, ModelWork, arithmetic_of, least_seconds

WORK = ModelWork(
    matrices=(
        Matrix("a", "Q4_0", 8, 4),
        Matrix("b", "BF16", 2, 4),
        Matrix("head", "Q8_0", 16, 4, is_head=True),
    ),
    weight_bytes=1000,
    kv_bytes_per_token=10.0,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    precision="fast",
)
PEAKS = {"int8": 100.0, "bf16": 10.0, "fp32": 5.0}


def requests() -> list[RequestTrace]:
    return [
        RequestTrace(0.0, 0.0, [1.0, 2.0, 3.0], 5, 2, "length"),
        RequestTrace(0.0, 0.0, [2.0, 3.0], 4, 0, "length"),
    ]


def test_arithmetic_follows_type_and_precision() -> None:
    assert [arithmetic_of(t, "fast") for t in ("Q4_1", "Q6_K", "BF16", "F32")] == [
        "int8",
        "int8",
        "bf16",
        "bf16",
    ]
    assert arithmetic_of("Q4_1", "fp32") == "fp32"
    assert WORK.arithmetics() == ("int8", "bf16", "fp32")


def test_operations_are_counted_by_hand() -> None:
    found = least_seconds(WORK, Limits(1.0, PEAKS), requests())
    # Tokens computed: 3 + 1 + 1 of the first, 4 + 1 of the second. Logits rows: one per token made.
    products = 10 * (2 * 8 * 4 + 2 * 2 * 4) + 5 * 2 * 16 * 4
    # Tokens seen: prompt tokens 3, 4, 5 see as many; then 6 and 7. The second: 1 + 2 + 3 + 4, then 5.
    seen = (3 + 4 + 5) + 6 + 7 + (1 + 2 + 3 + 4) + 5
    assert found["ops"] == pytest.approx(products + 4 * 2 * 2 * 4 * seen)
    # Read: weights in 3 steps; cached tokens: 2, then 6 and 7; none, then 5.
    assert found["bytes"] == pytest.approx(3 * 1000 + 10 * (2 + 6 + 7 + 0 + 5))


def test_least_time_takes_the_larger_bound_of_each_step() -> None:
    slow_memory = least_seconds(WORK, Limits(1e-3, dict.fromkeys(PEAKS, 1000000000.0)), requests())
    assert slow_memory["least_seconds"] == pytest.approx(slow_memory["bytes"] / 1e-3 * 1e-9)
    assert slow_memory["memory_bound_share"] == pytest.approx(1.0)
    same = dict.fromkeys(PEAKS, 1.0)
    slow_cores = least_seconds(WORK, Limits(1e9, same), requests())
    assert slow_cores["least_seconds"] == pytest.approx(slow_cores["ops"] * 1e-9)
    assert slow_cores["memory_bound_share"] == 0.0


def test_an_unknown_peak_gives_no_share_rather_than_a_wrong_one() -> None:
    assert least_seconds(WORK, Limits(1.0, {**PEAKS, "int8": 0.0}), requests())["least_seconds"] is None
