"""Ratios of pairs measured in turns: against scipy, and on the drift of a busy machine."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from scipy import stats

from deepinfer_cli.bench.pairs import pairs_width
from deepinfer_cli.bench.record import CONVERGED_WIDTH
from deepinfer_cli.bench.session import MAX_REPETITIONS, MIN_REPETITIONS
from deepinfer_cli.stats.paired import mean_ratio

SERIES = Path(__file__).parent / "data" / "series_of_one_build.json"
NUM_TRIALS = 1000


def neighbours() -> list[tuple[float, float]]:
    """What two engines of one build would have measured in turns."""
    values = json.loads(SERIES.read_text())["total_tokens_per_cpu_s"]
    return list(zip(values[::2], values[1::2], strict=True))


def share_of_differences(speed: float, num_pairs: int) -> float:
    """How often so many pairs, drawn from the recorded ones, are called different."""
    rng, pairs, found = random.Random(num_pairs), neighbours(), 0
    for _ in range(NUM_TRIALS):
        first, second = [], []
        for a, b in rng.choices(pairs, k=num_pairs):
            a, b = (b, a) if rng.random() < 0.5 else (a, b)
            first.append(a)
            second.append(b * speed)
        ratio = mean_ratio(second, first)
        assert ratio is not None
        found += ratio.is_different
    return found / NUM_TRIALS


def test_false_alarms_with_the_drift_that_was_measured_on_a_busy_machine() -> None:
    spread = [abs(math.log(a / b)) for a, b in neighbours()]
    assert max(spread) > 0.1  # it was a busy machine indeed
    for num_pairs in (MIN_REPETITIONS, MAX_REPETITIONS):
        assert share_of_differences(1.0, num_pairs) <= 0.05


def test_ten_percent_slower_is_found_at_the_repetitions_that_a_busy_machine_gets() -> None:
    assert share_of_differences(0.9, MAX_REPETITIONS) >= 0.95


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    a, b = [1.1, 1.3, 0.9, 1.25], [1.0, 1.1, 1.0, 1.05]
    ratio = mean_ratio(a, b)
    wanted = stats.ttest_rel([math.log(v) for v in a], [math.log(v) for v in b]).confidence_interval(0.95)
    assert ratio is not None
    assert (math.log(ratio.low), math.log(ratio.high)) == pytest.approx((wanted.low, wanted.high), rel=1e-6)
    assert ratio.relative_width == pytest.approx((wanted.high - wanted.low) / 2, rel=1e-6)
    assert mean_ratio([1.0], [1.0]) is None


def test_a_cell_with_a_peer_is_certain_when_the_ratio_is() -> None:
    def repetition(ours: float, theirs: float) -> dict[str, object]:
        return {
            "throughput": {"output_tokens_per_s": ours, "total_tokens_per_cpu_s": None},
            "peer": {"output_tokens_per_s": theirs},
        }

    drifting = [repetition(100.0 * d, 50.0 * d) for d in (1.0, 0.5, 2.0, 0.8)]
    assert pairs_width(drifting) < CONVERGED_WIDTH
    assert pairs_width(drifting[:1]) == math.inf
