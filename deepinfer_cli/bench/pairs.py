"""Ratios to a peer that was measured in turns with ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deepinfer_cli.bench.fields import value_at
from deepinfer_cli.stats.paired import MeanRatio, mean_ratio

# (name, our field, its counterpart in the peer's part)
_RATIOS: Final = (
    ("wall", "throughput.output_tokens_per_s", "output_tokens_per_s"),
    ("cpu", "throughput.total_tokens_per_cpu_s", "total_tokens_per_cpu_s"),
)


def pair_ratios(repetitions: Sequence[Mapping[str, Any]]) -> dict[str, MeanRatio | None]:
    """Our rate / the peer's over the pairs of a cell, by wall time and by CPU time."""
    found: dict[str, MeanRatio | None] = {}
    for name, ours, theirs in _RATIOS:
        pairs = [(value_at(r, ours), value_at(r, f"peer.{theirs}")) for r in repetitions]
        whole = [(a, b) for a, b in pairs if a and b]
        found[name] = mean_ratio([a for a, _ in whole], [b for _, b in whole])
    return found


def pairs_width(repetitions: Sequence[Mapping[str, Any]]) -> float:
    """Relative half width of the ratio that neighbours disturb least; infinite where there is none yet."""
    ratios = pair_ratios(repetitions)
    ratio = ratios["cpu"] or ratios["wall"]
    return math.inf if ratio is None else ratio.relative_width
