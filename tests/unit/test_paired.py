"""deepinfer_cli.stats.paired against closed forms."""

import math
import random

import pytest

from deepinfer_cli.stats.paired import median_ratio, quantile


def test_quantile_is_linear_between_neighbours():
    values = [1.0, 2.0, 4.0, 8.0]
    assert quantile(values, 0.0) == 1.0
    assert quantile(values, 0.5) == 3.0
    assert quantile(values, 1.0) == 8.0
    assert quantile(values, 0.9) == pytest.approx(4.0 + 0.7 * 4.0)


def test_equal_ratios_have_an_interval_of_no_width():
    estimate = median_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (estimate.median, estimate.low, estimate.high, estimate.num_pairs) == (2.0, 2.0, 2.0, 3)


def test_drift_shared_by_both_cancels():
    drift = [1.0, 1.5, 0.7, 3.0, 2.2]
    assert median_ratio([3.0 * d for d in drift], drift).high == pytest.approx(3.0)


def test_interval_of_a_median_matches_its_exact_distribution():
    # With 3 distinct ratios a resample's median is the largest unless two or more of the three draws miss
    # it: P = P(at least 2 of 3 draws are the largest) = 7/27, so the 95 % interval spans all three.
    estimate = median_ratio([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    assert (estimate.low, estimate.median, estimate.high) == (1.0, 2.0, 3.0)
    # At level 0.4 the tails hold 0.3 > 7/27 each, so the interval shrinks to the middle value.
    narrow = median_ratio([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], level=0.4)
    assert (narrow.low, narrow.high) == (2.0, 2.0)


def test_interval_covers_the_true_median_about_as_often_as_it_says():
    rng = random.Random(5)
    covered, num_trials, num_pairs = 0, 200, 15
    for trial in range(num_trials):
        ratios = [math.exp(rng.gauss(math.log(1.5), 0.2)) for _ in range(num_pairs)]
        estimate = median_ratio(ratios, [1.0] * num_pairs, num_resamples=200, seed=trial)
        covered += estimate.low <= 1.5 <= estimate.high
    assert 0.88 <= covered / num_trials <= 0.99


def test_the_same_seed_gives_the_same_interval():
    a = [1.0, 1.2, 0.9, 1.4, 1.1]
    assert median_ratio(a, [1.0] * 5, seed=3) == median_ratio(a, [1.0] * 5, seed=3)


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="2 numerators but 1"):
        median_ratio([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="no pairs"):
        median_ratio([], [])
