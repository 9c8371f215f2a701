"""Two systems on the same problems: is the difference real?"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from deepinfer_cli.stats.distributions import binomial_tail
from deepinfer_cli.stats.paired import quantile

NUM_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class McNemar:
    only_first: int  # problems that only the first system solved
    only_second: int
    p_value: float  # exact, two-sided


@dataclass(frozen=True, slots=True)
class PairedDifference:
    difference: float  # second minus first, mean over problems
    low: float
    high: float
    level: float
    p_value: float  # two-sided: the mean of problem differences whose signs are drawn at random
    num_pairs: int


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """The exact test on the problems about which the two disagree."""
    pairs = list(zip(first, second, strict=True))
    only_first = sum(a and not b for a, b in pairs)
    only_second = sum(b and not a for a, b in pairs)
    discordant = only_first + only_second
    if discordant == 0:
        return McNemar(0, 0, 1.0)
    p_value = 2.0 * binomial_tail(min(only_first, only_second), discordant)
    return McNemar(only_first, only_second, min(1.0, p_value))


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    *,
    num_resamples: int = NUM_RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> PairedDifference:
    """Mean of second - first with its percentile bootstrap interval over problems; same seed, same result."""
    differences = [b - a for a, b in zip(first, second, strict=True)]
    if not differences:
        raise ValueError("no problems in common")
    rng = random.Random(seed)
    n = len(differences)
    means = sorted(math.fsum(rng.choices(differences, k=n)) / n for _ in range(num_resamples))
    tail = (1.0 - level) / 2.0
    return PairedDifference(
        difference=math.fsum(differences) / n,
        low=quantile(means, tail),
        high=quantile(means, 1.0 - tail),
        level=level,
        p_value=_sign_flip_p(differences, num_resamples, rng),
        num_pairs=n,
    )


def _sign_flip_p(differences: Sequence[float], num_resamples: int, rng: random.Random) -> float:
    """Two-sided p of the mean under random signs: exact for up to 12 differing problems, else sampled."""
    moving = [d for d in differences if d]
    observed = abs(math.fsum(moving)) - 1e-12
    if len(moving) <= 12:
        sums = [0.0]
        for d in moving:
            sums = [s + sign * d for s in sums for sign in (1, -1)]
        return sum(abs(s) >= observed for s in sums) / len(sums)
    hits = 0
    for _ in range(num_resamples):
        signs = rng.getrandbits(len(moving))
        total = math.fsum(d if signs >> i & 1 else -d for i, d in enumerate(moving))
        hits += abs(total) >= observed
    return (hits + 1) / (num_resamples + 1)  # the observed signs are one of the draws
