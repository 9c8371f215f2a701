"""Ratios of paired measurements: median with bootstrap interval, or geometric mean with Student's t.

Two engines measured one after the other share the state of the machine, so each pair gives one ratio and
the drift between pairs cancels. The bootstrap assumes no normality, but with a dozen pairs its intervals are
a little too short; those of the mean logarithm keep what they promise from five pairs on.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deepinfer_cli.stats.distributions import t_quantile

NUM_RESAMPLES: Final = 10_000
LEVEL: Final = 0.95


@dataclass(frozen=True)
class RatioEstimate:
    """The median of `numerator / denominator` over pairs, with its interval."""

    median: float
    low: float
    high: float
    num_pairs: int


def quantile(ordered: Sequence[float], share: float) -> float:
    """The `share` quantile of sorted values, linear between neighbours (Hyndman and Fan's type 7)."""
    if not ordered:
        raise ValueError("no values")
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def median_ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    *,
    num_resamples: int = NUM_RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> RatioEstimate:
    """The median of the pairwise ratios and its percentile bootstrap interval; the same for the same seed."""
    if len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} numerators but {len(denominators)} denominators")
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    if not ratios:
        raise ValueError("no pairs")
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(num_resamples))
    tail = (1.0 - level) / 2.0
    return RatioEstimate(
        median=statistics.median(ratios),
        low=quantile(medians, tail),
        high=quantile(medians, 1.0 - tail),
        num_pairs=len(ratios),
    )


@dataclass(frozen=True, slots=True)
class MeanRatio:
    """The geometric mean of `numerator / denominator` over pairs, with its interval."""

    value: float
    low: float
    high: float
    num_pairs: int

    @property
    def is_different(self) -> bool:
        return self.low > 1.0 or self.high < 1.0

    @property
    def relative_width(self) -> float:
        """Half of the interval of the logarithm."""
        return math.log(self.high / self.low) / 2


def mean_ratio(
    numerators: Sequence[float], denominators: Sequence[float], *, level: float = LEVEL
) -> MeanRatio | None:
    """None with fewer than two pairs; values are above 0."""
    logs = [math.log(a / b) for a, b in zip(numerators, denominators, strict=True)]
    if len(logs) < 2:
        return None
    centre, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    half = t_quantile(0.5 + level / 2.0, len(logs) - 1) * error
    return MeanRatio(math.exp(centre), math.exp(centre - half), math.exp(centre + half), len(logs))
