"""Ratios to a peer that was measured in turns with ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from deepinfer_cli.bench.fields import value_at
from deepinfer_cli.stats.paired import median_ratio

# (name, our field, its counterpart in the peer's part)
_RATIOS: Final = (
    ("wall", "throughput.output_tokens_per_s", "output_tokens_per_s"),
    ("cpu", "throughput.total_tokens_per_cpu_s", "total_tokens_per_cpu_s"),
)


def pair_ratios(repetitions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Our rate / the peer's over the pairs of a cell, with intervals; by wall time and by CPU time."""
    found: dict[str, Any] = {}
    for name, ours, theirs in _RATIOS:
        pairs = [(value_at(r, ours), value_at(r, f"peer.{theirs}")) for r in repetitions]
        whole = [(a, b) for a, b in pairs if a and b]
        if whole:
            estimate = median_ratio([a for a, _ in whole], [b for _, b in whole])
            found[name] = asdict(estimate)
        else:
            found[name] = None
    return found
