"""Statistics of evaluations against closed forms and scipy."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats as reference

from deepinfer_cli.stats import comparison, distributions, repeats


@pytest.mark.parametrize("degrees", [1, 2, 5, 29, 197, 2499])
@pytest.mark.parametrize("share", [0.005, 0.025, 0.5, 0.9, 0.975, 0.9995])
def test_t_quantile_equals_scipy(degrees: int, share: float) -> None:
    ours = distributions.t_quantile(share, degrees)
    assert ours == pytest.approx(reference.t.ppf(share, degrees), rel=1e-9, abs=1e-9)
    assert distributions.t_cdf(ours, degrees) == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (1, 1), (2, 5), (30, 1), (14.5, 0.5), (200, 300)])
def test_beta_equals_scipy(a: float, b: float) -> None:
    for x in np.linspace(0, 1, 23):
        assert distributions.beta_cdf(a, b, float(x)) == pytest.approx(reference.beta.cdf(x, a, b), abs=1e-12)
    for share in (0.025, 0.5, 0.975):
        want = reference.beta.ppf(share, a, b)
        assert distributions.beta_quantile(a, b, share) == pytest.approx(want, rel=1e-9)


def test_binomial_tail_equals_scipy() -> None:
    for n, k, p in [(1, 0, 0.5), (10, 3, 0.5), (198, 80, 0.5), (30, 30, 0.2), (50, 7, 0.1)]:
        assert distributions.binomial_tail(k, n, p) == pytest.approx(reference.binom.cdf(k, n, p), rel=1e-10)


# ---- clustered intervals ---------------------------------------------------------------------------------


def test_one_sample_per_problem_is_the_ordinary_t_interval() -> None:
    values = [1.0, 0, 1, 1, 0, 1, 0, 0, 1, 1]
    got = repeats.clustered_mean([[v] for v in values])
    error = reference.sem(values)
    low, high = reference.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error)
    assert got.interval is not None
    assert got.standard_error == pytest.approx(error)
    assert (got.interval.low, got.interval.high) == pytest.approx((low, high))


def clustered_failures(estimate: Callable[[Sequence[Sequence[float]]], repeats.MeanEstimate]) -> int:
    """How many seeded designs break the closed form: equal clusters are a t interval of their means."""
    rng = random.Random(5)
    failures = 0
    for num_problems, num_samples in itertools.product((2, 3, 30), (1, 4, 16)):
        chances = [rng.random() for _ in range(num_problems)]
        clusters = [[float(rng.random() < p) for _ in range(num_samples)] for p in chances]
        means = [sum(c) / num_samples for c in clusters]
        if len(set(means)) == 1:
            continue
        got = estimate(clusters)
        low, high = reference.t.interval(0.95, num_problems - 1, np.mean(means), reference.sem(means))
        want = (max(0.0, low), min(1.0, high))
        ours = (math.nan, math.nan) if got.interval is None else (got.interval.low, got.interval.high)
        failures += ours != pytest.approx(want, rel=1e-9)
    return failures


def test_equal_clusters_are_a_t_interval_of_their_means() -> None:
    assert clustered_failures(repeats.clustered_mean) == 0


@pytest.mark.parametrize(
    "mutant", ["samples-are-independent", "no-small-sample-factor", "one-degree-too-many"]
)
def test_a_broken_clustering_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    estimate = repeats.clustered_mean
    if mutant == "samples-are-independent":
        estimate = lambda clusters: repeats.clustered_mean([[v] for c in clusters for v in c])  # noqa: E731
    elif mutant == "one-degree-too-many":
        monkeypatch.setattr(repeats, "t_quantile", lambda p, df: distributions.t_quantile(p, df + 1))
    else:

        def estimate(clusters: Sequence[Sequence[float]], level: float = 0.95) -> repeats.MeanEstimate:
            got = repeats.clustered_mean(clusters)
            assert got.standard_error is not None
            error = got.standard_error * math.sqrt((len(clusters) - 1) / len(clusters))
            interval = repeats._interval(got.mean, error, len(clusters), level)
            return repeats.MeanEstimate(got.mean, error, interval, got.num_clusters, got.num_values)

    assert clustered_failures(estimate) > 0


def test_unequal_clusters_equal_the_sandwich_formula() -> None:
    clusters = [[1.0, 0.0, 1.0], [0.0], [1.0, 1.0], [0.0, 0.0, 0.0, 1.0]]
    values = np.concatenate([np.array(c) for c in clusters])
    design = np.ones((len(values), 1))
    residuals = values - values.mean()
    index = np.repeat(range(4), [len(c) for c in clusters])
    scores = np.array([residuals[index == g].sum() for g in range(4)])
    bread = np.linalg.inv(design.T @ design)[0, 0]
    want = math.sqrt(4 / 3 * bread * (scores @ scores) * bread)
    assert repeats.clustered_mean(clusters).standard_error == pytest.approx(want)


def test_all_alike_gives_the_exact_bound_and_not_a_width_of_zero() -> None:
    got = repeats.clustered_mean([[1.0] * 16] * 30)
    want = reference.binomtest(30, 30).proportion_ci(0.95, "exact")
    assert got.interval is not None
    assert (got.interval.low, got.interval.high) == pytest.approx((want.low, want.high))
    assert got.interval.method == "all-equal"
    none = repeats.clustered_mean([[0.0]] * 10).interval
    assert none is not None
    assert none.high == pytest.approx(reference.binomtest(0, 10).proportion_ci(0.95, "exact").high)


def test_one_problem_has_no_interval_and_no_values_no_mean() -> None:
    got = repeats.clustered_mean([[1.0, 0.0]])
    assert (got.mean, got.interval, got.standard_error) == (0.5, None, None)
    with pytest.raises(ValueError):
        repeats.clustered_mean([[]])


def test_clustered_interval_covers_where_the_naive_one_does_not() -> None:
    rng = random.Random(11)
    covered = naive = 0
    for _ in range(300):
        clusters = []
        for _ in range(30):
            p = rng.betavariate(0.5, 0.5)
            clusters.append([float(rng.random() < p) for _ in range(16)])
        got = repeats.clustered_mean(clusters).interval
        flat = repeats.clustered_mean([[v] for c in clusters for v in c]).interval
        assert got is not None and flat is not None
        covered += got.low <= 0.5 <= got.high
        naive += flat.low <= 0.5 <= flat.high
    assert covered >= 0.9 * 300
    assert naive < 0.6 * 300


# ---- pass@k and majority ---------------------------------------------------------------------------------


def test_pass_at_k_equals_enumeration() -> None:
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            draws = list(itertools.combinations([1] * c + [0] * (n - c), k))
            want = sum(any(d) for d in draws) / len(draws)
            assert repeats.pass_at_k(n, c, k) == pytest.approx(want)
    assert repeats.mean_pass_at_k([(4, 4), (4, 0)], 2) == 0.5
    assert repeats.pass_at_k(16, 3, 1) == pytest.approx(3 / 16)
    with pytest.raises(ValueError):
        repeats.pass_at_k(4, 1, 5)


@pytest.mark.parametrize(
    ("votes", "right", "share"),
    [
        (["7", "7", "8"], [True, True, False], 1.0),
        (["7", "8", "8"], [True, False, False], 0.0),
        (["7", "8"], [True, False], 0.5),
        (["7", "8", "9"], [True, False, False], 1 / 3),
        ([None, None, "7"], [False, False, True], 1.0),
        ([None, None], [False, False], 0.0),
    ],
)
def test_majority(votes: list[str | None], right: list[bool], share: float) -> None:
    assert repeats.majority_share(votes, right) == pytest.approx(share)
    assert repeats.majority_share(votes[::-1], right[::-1]) == pytest.approx(share)


# ---- comparison ------------------------------------------------------------------------------------------


def test_mcnemar_equals_scipy() -> None:
    for only_first, only_second, both in [(0, 0, 5), (1, 0, 5), (10, 2, 30), (7, 7, 1), (40, 61, 97)]:
        first = [True] * only_first + [False] * only_second + [True] * both
        second = [False] * only_first + [True] * only_second + [True] * both
        got = comparison.mcnemar(first, second)
        assert (got.only_first, got.only_second) == (only_first, only_second)
        if only_first + only_second:
            want = reference.binomtest(only_first, only_first + only_second, 0.5).pvalue
            assert got.p_value == pytest.approx(want)
        else:
            assert got.p_value == 1.0


def test_paired_difference_equals_scipy_bootstrap() -> None:
    rng = random.Random(3)
    first = [rng.choice((0.0, 0.25, 0.5, 1.0)) for _ in range(60)]
    second = [min(1.0, a + rng.choice((0.0, 0.0, 0.25))) for a in first]
    got = comparison.paired_difference(first, second)
    differences = np.array(second) - np.array(first)
    want = reference.bootstrap((differences,), np.mean, n_resamples=20_000, method="percentile", rng=1)
    assert got.difference == pytest.approx(differences.mean())
    assert got.low == pytest.approx(want.confidence_interval.low, abs=0.006)
    assert got.high == pytest.approx(want.confidence_interval.high, abs=0.006)
    assert comparison.paired_difference(first, second) == got


def test_sign_flips_equal_scipy_permutation() -> None:
    first, second = [0.0, 0.5, 0.25, 0.0, 1.0, 0.5, 0.0], [0.5, 0.5, 0.75, 0.25, 0.75, 1.0, 0.25]
    got = comparison.paired_difference(first, second)
    want = reference.permutation_test(
        (second, first), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=np.inf
    )
    assert got.p_value == pytest.approx(want.pvalue)


def test_many_differing_problems_are_sampled() -> None:
    rng = random.Random(8)
    first = [rng.random() for _ in range(80)]
    same = [a + rng.uniform(-0.1, 0.1) for a in first]
    better = [a + 0.05 + rng.uniform(-0.1, 0.1) for a in first]
    assert comparison.paired_difference(first, same).p_value > 0.05
    assert comparison.paired_difference(first, better).p_value < 0.001
    assert comparison.paired_difference(first, first).p_value == 1.0
