"""Numbers of a repetition from hand-made token times; percentiles against numpy."""

from __future__ import annotations

import random

import numpy as np
import pytest

from deepinfer_cli.bench.spec import Slo
from deepinfer_cli.bench.timeline import DISTRIBUTIONS, RequestTrace, Timeline, distribution


def trace(submitted: float, times: list[float], **more: object) -> RequestTrace:
    values = {"queue_s": 0.0, "num_prompt_tokens": 10, "num_cached_tokens": 0, "finish_reason": "length"}
    return RequestTrace(submitted=submitted, token_times=times, **{**values, **more})  # type: ignore[arg-type]


# Two requests at once: steps end at 1, 1.5, 2, 4 for the first, and 1.5, 2, 3 for the second.
A = trace(0.0, [1.0, 1.5, 2.0, 4.0])
B = trace(0.5, [1.5, 2.0, 3.0])
LINE = Timeline([A, B], concurrency=2)


def test_distributions_are_numpys() -> None:
    rng = random.Random(3)
    for n in (1, 2, 3, 7, 100, 1001):
        values = [rng.lognormvariate(0, 1) for _ in range(n)]
        found = distribution(values)
        assert found["mean"] == pytest.approx(np.mean(values))
        assert found["std"] == pytest.approx(np.std(values), abs=1e-12)
        assert found["max"] == max(values)
        for q in (50, 90, 95, 99):
            assert found[f"p{q}"] == pytest.approx(np.percentile(values, q), rel=1e-12)
    assert set(distribution([]).values()) == {None}


def test_latencies_of_a_hand_made_timeline() -> None:
    latency = LINE.latency()
    assert set(latency) == set(DISTRIBUTIONS)
    wanted = {
        "ttft_ms": [1000, 1000],
        "tpot_ms": [1000, 750],
        "itl_ms": [500, 500, 2000, 500, 1000],
        "step_gap_ms": [500, 500, 1000, 1000],
        "e2e_ms": [4000, 2500],
        "queue_ms": [0, 0],
    }
    for name, values in wanted.items():
        for q in (50, 90, 95, 99):
            assert latency[name][f"p{q}"] == pytest.approx(np.percentile(values, q)), name
        assert latency[name]["mean"] == pytest.approx(np.mean(values))


def test_two_tokens_of_one_step_are_no_step_apart() -> None:
    line = Timeline([trace(0.0, [1.0, 1.0, 2.0])], 1)
    assert line.latency()["itl_ms"]["p50"] == 500
    assert line.latency()["step_gap_ms"]["max"] == 1000


def test_throughput_counts_from_the_first_submission_to_the_last_token() -> None:
    rates = LINE.throughput(cpu_seconds=8.0)
    assert rates["seconds"] == 4.0
    assert rates["output_tokens_per_s"] == pytest.approx(7 / 4)
    assert rates["input_tokens_per_s"] == pytest.approx(20 / 4)
    assert rates["total_tokens_per_s"] == pytest.approx(27 / 4)
    assert rates["requests_per_s"] == pytest.approx(2 / 4)
    assert rates["total_tokens_per_cpu_s"] == pytest.approx(27 / 8)


def test_steady_rate_covers_the_time_when_all_slots_decode() -> None:
    # Both decode after 1.5 (B's first token); the first end without a successor is B's, at 3.
    assert LINE.steady_rate() == pytest.approx((1 + 2) / 1.5)
    assert Timeline([A], 2).steady_rate() is None
    assert Timeline([trace(0, [1.0]), trace(0, [1.0])], 2).steady_rate() is None


def test_tail_share_counts_idle_slots() -> None:
    # Until 0.5 one of two is busy, which is half, not less; the same after B's end at 3.
    assert LINE.tail_share() == pytest.approx(0.0)
    wide = Timeline([A, B], concurrency=4)
    assert wide.tail_share() == pytest.approx((0.5 + 1.0) / 4)


def test_peak_is_never_below_the_mean() -> None:
    rng = random.Random(1)
    for _ in range(200):
        times = sorted(rng.uniform(0.1, rng.choice([0.5, 3.0, 20.0])) for _ in range(rng.randint(1, 50)))
        line = Timeline([trace(0.0, times)], 1)
        peak, mean = line.peak_rate(), line.throughput(1.0)["output_tokens_per_s"]
        assert peak is not None and peak >= mean * (1 - 1e-9)


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    good = LINE.goodput(Slo(tpot_ms=800), price_per_hour=3.6)
    assert good["good_share"] == 0.5
    assert good["good_output_tokens_per_s"] == pytest.approx(3 / 4)
    assert good["cost_per_million_output_tokens"] == pytest.approx(3.6 * 4 / 3600 / 7 * 1e6)
    assert good["cost_per_million_good_tokens"] == pytest.approx(3.6 * 4 / 3600 / 3 * 1e6)
    assert LINE.goodput(Slo(), None)["good_share"] == 1.0
    assert LINE.goodput(Slo(ttft_ms=999), 1.0)["cost_per_million_good_tokens"] is None
    assert LINE.goodput(Slo(ttft_ms=1000, tpot_ms=1000, e2e_ms=2500), None)["good_share"] == 0.5


def test_lengths_and_hit_rate_are_what_was_measured() -> None:
    line = Timeline([trace(0, [1.0], num_cached_tokens=5), trace(0, [1.0, 2.0])], 2)
    lengths = line.lengths()
    assert lengths["prefix_hit_rate"] == 0.25
    assert lengths["output_tokens"]["mean"] == 1.5
    assert line.is_queue_dominated and not Timeline([A, B], 1).is_queue_dominated


def test_a_repetition_without_tokens_has_no_rates() -> None:
    line = Timeline([trace(0.0, [])], 1)
    assert line.throughput(0.0)["output_tokens_per_s"] is None
    assert line.peak_rate() is None and line.tail_share() is None and line.steady_rate() is None
    assert line.goodput(Slo(), 1.0)["good_share"] == 0.0
