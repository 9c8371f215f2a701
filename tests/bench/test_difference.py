"""Comparison of saved runs: what is refused, what is called a difference, and how often wrongly."""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from deepinfer_cli.bench.difference import (
    COMPARED,
    DRIFT_WHEN_BUSY,
    DRIFT_WHEN_QUIET,
    as_json,
    compare,
    overlap,
    ratio_of,
    rows_of,
)
from deepinfer_cli.bench.session import MIN_REPETITIONS
from deepinfer_cli.errors import InputError

RECORDED = Path(__file__).parent / "data" / "runs_of_one_build.json"
NUM_PAIRS = 1000


def recorded(name: str) -> list[list[float]]:
    return [run[name] for run in json.loads(RECORDED.read_text())["runs"]]


def simulated(scatter: float, drift: float, seed: int) -> Callable[[float], list[float]]:
    """Runs of the default number of repetitions: a speed of the run's own, and scatter around it."""
    rng = random.Random(seed)

    def run(speed: float) -> list[float]:
        centre = math.log(speed) + rng.gauss(0, drift)
        return [math.exp(centre + rng.gauss(0, scatter)) for _ in range(MIN_REPETITIONS)]

    return run


def share_of_differences(run: Callable[[float], list[float]], speed: float, factor: float) -> float:
    ratios = [ratio_of(run(1.0), run(speed), factor) for _ in range(NUM_PAIRS)]
    return sum(r is not None and r.is_different for r in ratios) / NUM_PAIRS


def measured_noise(name: str) -> tuple[float, float]:
    """(scatter inside a run, drift between runs) of the logarithms, from recorded runs of one build."""
    logs = [[math.log(v) for v in run] for run in recorded(name)]
    scatter2 = statistics.fmean(statistics.variance(run) for run in logs)
    between2 = statistics.variance([statistics.fmean(run) for run in logs])
    return math.sqrt(scatter2), math.sqrt(max(0.0, between2 - scatter2 / len(logs[0])))


def test_false_alarms_with_the_drift_that_was_measured_on_a_busy_machine() -> None:
    scatter, drift = measured_noise("total_tokens_per_cpu_s")
    assert drift > 0.05  # it was a busy machine indeed
    assert share_of_differences(simulated(scatter, drift, 1), 1.0, DRIFT_WHEN_BUSY) <= 0.05


@pytest.mark.slow
def test_false_alarms_on_a_quiet_machine() -> None:
    for scatter, drift in ((0.01, 0.0), (0.01, 0.008), (0.002, 0.004), (0.03, 0.02)):
        assert share_of_differences(simulated(scatter, drift, 2), 1.0, DRIFT_WHEN_QUIET) <= 0.05


def test_ten_percent_slower_is_found_on_a_quiet_machine() -> None:
    for scatter, drift in ((0.01, 0.01), (0.015, 0.005)):
        assert share_of_differences(simulated(scatter, drift, 3), 0.9, DRIFT_WHEN_QUIET) >= 0.95


def test_recorded_runs_of_one_build_are_not_called_different() -> None:
    runs = recorded("total_tokens_per_cpu_s")
    pairs = [ratio_of(a, b, DRIFT_WHEN_BUSY) for a, b in itertools.combinations(runs, 2)]
    assert len(pairs) >= 45
    assert sum(r is not None and r.is_different for r in pairs) <= 0.05 * len(pairs)


def test_what_is_said_to_be_detectable_is_found_that_often() -> None:
    # `detectable` is estimated from each pair; its typical value is held against the share really found.
    scatter, drift = 0.02, 0.02
    run = simulated(scatter, drift, 4)
    typical = statistics.median(
        r.detectable for r in (ratio_of(run(1.0), run(1.0), DRIFT_WHEN_QUIET) for _ in range(200)) if r
    )
    found = share_of_differences(run, 1 / (1 + typical), DRIFT_WHEN_QUIET)
    assert 0.88 <= found <= 0.99


def test_without_drift_the_interval_is_welchs() -> None:
    a, b = [1.0, 1.1, 1.2, 1.05], [1.3, 1.5, 1.2, 1.6, 1.4]
    ratio = ratio_of(a, b, 0.0)
    logs = [[math.log(v) for v in values] for values in (b, a)]
    wanted = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    assert ratio is not None
    assert (math.log(ratio.low), math.log(ratio.high)) == pytest.approx((wanted.low, wanted.high), rel=1e-6)


def test_too_few_or_impossible_values_give_no_ratio() -> None:
    assert ratio_of([1.0], [1.0, 2.0], 1.0) is None
    assert ratio_of([1.0, 0.0], [1.0, 2.0], 1.0) is None
    equal = ratio_of([5.0] * 5, [5.0] * 5, 1.0)
    assert equal is not None and not equal.is_different and equal.high > 1.0


# ---- documents ---------------------------------------------------------------------------------------------


def cell(index: int, rates: list[float], **changes: Any) -> dict[str, Any]:
    repetitions = [
        {
            "throughput": {"output_tokens_per_s": r, "total_tokens_per_cpu_s": 2 * r},
            "latency": {
                "ttft_ms": {"p50": 1000 / r},
                "tpot_ms": {"p50": 100 / r},
                "itl_ms": {"p99": 300 / r},
            },
            "lengths": {
                "input_tokens": {"mean": 32.0},
                "output_tokens": {"mean": 8.0},
                "prefix_hit_rate": 0.0,
            },
            "conditions": {"others_cpu_share": 0.02},
        }
        for r in rates
    ]
    made: dict[str, Any] = {
        "key": f"k{index}",
        "index": index,
        "swept": {"concurrency": index},
        "load": {"concurrency": index, "input_len": 32, "repetitions": 5, "warmup": 1},
        "engine": {"threads": 0},
        "status": "ok",
        "values": copy.deepcopy(repetitions[0]),
        "statistics": {"field": COMPARED[1], "low": min(rates), "high": max(rates), "converged": True},
        "output_hash": "a",
        "repetitions": repetitions,
    }
    return {**made, **changes}


def document(*cells: dict[str, Any], **header: Any) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "checkpoint": {"fingerprint": "f"},
        "memory_and_disk": {"cpu": "c", "cores": 2},
        "runtime": {"numerics": {"precision": "fast"}, "num_threads": 2},
        "effort_and_context": {"context_limit": 100},
        "task_mix": {"sha256": "s"},
        "slo": {},
    }
    return {"header": {**parts, **header}, "cells": list(cells)}


FAST, SLOW = [100.0, 101.0, 99.0, 100.5, 99.5], [88.0, 87.0, 88.5, 87.5, 88.2]


def test_a_slower_build_is_called_worse_in_every_field() -> None:
    found = compare(document(cell(1, FAST)), document(cell(1, SLOW)))
    assert not found.objections
    (difference,) = found.cells
    assert {difference.verdict(path) for path in COMPARED} == {"worse"}
    back = compare(document(cell(1, SLOW)), document(cell(1, FAST))).cells[0]
    assert {back.verdict(path) for path in COMPARED} == {"better"}
    same = compare(document(cell(1, FAST)), document(cell(1, FAST))).cells[0]
    assert {same.verdict(path) for path in COMPARED} == {"no difference shown"}
    assert [row[8] for row in rows_of(found)] == ["worse"] * len(COMPARED)
    assert as_json(found)["cells"][0]["intervals_overlap"] is False
    assert overlap(cell(1, FAST), cell(1, FAST))


def test_few_repetitions_prove_nothing() -> None:
    found = compare(document(cell(1, FAST[:2])), document(cell(1, SLOW[:2])))
    assert found.cells[0].verdict(COMPARED[0]) == "too few values"


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"checkpoint": {"fingerprint": "g"}}, "the weights differ: f and g"),
        ({"memory_and_disk": {"cpu": "d", "cores": 2}}, "the processors differ"),
        ({"runtime": {"numerics": {"precision": "bf16"}, "num_threads": 2}}, "the precisions differ"),
        ({"runtime": {"numerics": {"precision": "fast"}, "num_threads": 1}}, "the numbers of threads differ"),
        ({"task_mix": {"sha256": "t"}}, "the prompts differ"),
        ({"slo": {"ttft_ms": 5}}, "the limits of the SLO differ"),
    ],
)
def test_unlike_runs_are_objected_to(header: dict[str, Any], says: str) -> None:
    found = compare(document(cell(1, FAST)), document(cell(1, FAST), **header))
    assert len(found.objections) == 1 and says in found.objections[0]


def test_unlike_cache_states_and_lengths_are_objected_to() -> None:
    warm, short = cell(1, FAST), cell(2, FAST)
    warm["values"]["lengths"]["prefix_hit_rate"] = 0.4
    short["values"]["lengths"]["output_tokens"]["mean"] = 7.0
    found = compare(document(cell(1, FAST), cell(2, FAST)), document(warm, short))
    assert "the prefix cache answered 0 % and 40 %" in found.objections[0]
    assert "mean output tokens are 8.0 and 7.0" in found.objections[1]


def test_cells_without_a_partner_are_named() -> None:
    failed = cell(3, FAST, status="failed")
    found = compare(
        document(cell(1, FAST), cell(2, FAST), failed), document(cell(1, FAST), cell(4, FAST), cell(3, FAST))
    )
    assert len(found.cells) == 1
    assert found.only_first == ("concurrency 2",) and found.only_second == ("concurrency 4",)
    with pytest.raises(InputError, match="no measured cell in common"):
        compare(document(cell(1, FAST)), document(cell(2, FAST)))


def test_busy_machines_and_changed_answers_are_noted() -> None:
    busy = cell(1, FAST, output_hash="b")
    busy["repetitions"][2]["conditions"]["others_cpu_share"] = 0.6
    notes = compare(document(cell(1, FAST)), document(busy)).cells[0].notes
    assert any("busy" in note for note in notes) and "answers differ" in notes
