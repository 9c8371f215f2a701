"""Percentile bootstrap of the median of a few repetitions."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deepinfer_cli.stats.paired import quantile

NUM_RESAMPLES: Final = 2_000
LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True)
class MedianEstimate:
    median: float
    low: float
    high: float
    num_values: int

    @property
    def relative_width(self) -> float:
        """Half of the interval / the median; infinite when the median is 0 or there was one value only."""
        if self.num_values < 2 or self.median == 0:
            return float("inf")
        return (self.high - self.low) / 2 / abs(self.median)


def median_estimate(
    values: Sequence[float], *, num_resamples: int = NUM_RESAMPLES, level: float = LEVEL, seed: int = 0
) -> MedianEstimate:
    """The same values and seed give the same interval. ValueError without values."""
    if not values:
        raise ValueError("no values")
    n = len(values)
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=n)) for _ in range(num_resamples))
    tail = (1.0 - level) / 2.0
    return MedianEstimate(
        statistics.median(values), quantile(medians, tail), quantile(medians, 1.0 - tail), n
    )
