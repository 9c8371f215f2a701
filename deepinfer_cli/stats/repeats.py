"""Numbers from several samples per problem: mean with a clustered interval, pass@k, majority, solve counts.

Samples of one problem resemble each other, so the problem is the unit that was drawn: an interval that took
each sample for an independent draw would be too narrow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deepinfer_cli.stats.distributions import t_quantile

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float
    level: float
    # "clustered-t": Student's t over problems. "all-equal": every problem had the same mean, so the bound is
    # the exact one for problems that all turned out alike (Clopper and Pearson).
    method: Literal["clustered-t", "all-equal"]


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    mean: float
    standard_error: float | None  # None with fewer than two clusters
    interval: Interval | None  # None with fewer than two clusters
    num_clusters: int
    num_values: int


def clustered_mean(clusters: Sequence[Sequence[float]], level: float = LEVEL) -> MeanEstimate:
    """Mean over all values, with the cluster-robust standard error and t interval (clusters - 1 degrees).

    Values lie between 0 and 1 and so does the interval. Clusters may differ in size; empty ones do not count.
    """
    clusters = [cluster for cluster in clusters if cluster]
    num_values = sum(len(cluster) for cluster in clusters)
    if not num_values:
        raise ValueError("no values")
    mean = math.fsum(value for cluster in clusters for value in cluster) / num_values
    m = len(clusters)
    if m < 2:
        return MeanEstimate(mean, None, None, m, num_values)
    residuals = [math.fsum(value - mean for value in cluster) for cluster in clusters]
    variance = m / (m - 1) * math.fsum(r * r for r in residuals) / num_values**2
    error = math.sqrt(variance)
    return MeanEstimate(mean, error, _interval(mean, error, m, level), m, num_values)


def _interval(mean: float, error: float, num_clusters: int, level: float) -> Interval:
    if error < 1e-12 and mean in (0.0, 1.0):
        # A width of zero would claim certainty that a handful of problems cannot give.
        reach = 1.0 - ((1.0 - level) / 2.0) ** (1.0 / num_clusters)
        low, high = (0.0, reach) if mean == 0.0 else (1.0 - reach, 1.0)
        return Interval(low, high, level, "all-equal")
    half = t_quantile(0.5 + level / 2.0, num_clusters - 1) * error
    return Interval(max(0.0, mean - half), min(1.0, mean + half), level, "clustered-t")


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Unbiased chance that at least one of k samples drawn without replacement is correct."""
    if not 0 <= num_correct <= num_samples or not 1 <= k <= num_samples:
        raise ValueError(f"pass@{k} of {num_correct} correct in {num_samples} samples is not defined")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """Mean over problems of pass@k; `counts` holds (samples, correct) per problem."""
    return math.fsum(pass_at_k(n, c, k) for n, c in counts) / len(counts)


def majority_share(votes: Sequence[str | None], right: Sequence[bool]) -> float:
    """Chance that the most frequent answer is right; tied answers are drawn with equal chance.

    `votes` are the answers of one problem's samples, None where there was none (no vote); `right` says
    whether each was correct. Without any vote the majority is wrong.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    if not counts:
        return 0.0
    most = max(counts.values())
    leaders = {vote for vote, count in counts.items() if count == most}
    good = {vote for vote, is_right in zip(votes, right, strict=True) if is_right and vote in leaders}
    return len(good) / len(leaders)
