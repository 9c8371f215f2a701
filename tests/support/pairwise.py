"""A small set of rows in which every pair of values of any two factors meets at least once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any


def pairwise_cover(factors: Mapping[str, Sequence[Any]], seed: int = 0) -> list[dict[str, Any]]:
    """Greedy: each row starts from an uncovered pair and takes the best of many random completions."""
    rng = random.Random(seed)
    names = list(factors)
    uncovered = {
        (a, i, b, j)
        for a, b in itertools.combinations(range(len(names)), 2)
        for i in range(len(factors[names[a]]))
        for j in range(len(factors[names[b]]))
    }

    def pairs(row: Sequence[int]) -> set[tuple[int, int, int, int]]:
        return {(a, row[a], b, row[b]) for a, b in itertools.combinations(range(len(row)), 2)}

    rows = []
    while uncovered:
        a, i, b, j = min(uncovered)
        best: list[int] = []
        for _ in range(200):
            row = [rng.randrange(len(factors[name])) for name in names]
            row[a], row[b] = i, j
            if not best or len(pairs(row) & uncovered) > len(pairs(best) & uncovered):
                best = row
        uncovered -= pairs(best)
        rows.append({name: factors[name][value] for name, value in zip(names, best, strict=True)})
    return rows
