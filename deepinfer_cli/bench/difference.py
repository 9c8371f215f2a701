"""Two saved runs, cell by cell: what may be compared, and whether the difference is real.

A difference of two runs has two sources beside the builds: repetitions scatter, and the machine as a whole is
a little faster or slower from one run to the next. Repetitions of one run cannot show the second, so it is
put in: as large as the scatter on a quiet machine, and as DRIFT_WHEN_BUSY times the scatter when other
processes were busy, which is what running one build again and again on a busy machine gave. The interval is
that of the ratio of the geometric means: Student's t, with Satterthwaite's degrees of freedom for the sum of
these parts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deepinfer_cli.bench.fields import BY_PATH, STEADY_AGAINST_NEIGHBOURS, value_at
from deepinfer_cli.bench.record import QUIET_SHARE
from deepinfer_cli.errors import InputError
from deepinfer_cli.stats.distributions import t_quantile

LEVEL: Final = 0.95
POWER: Final = 0.95  # with which a difference of `detectable` size is found
# Standard deviation of the machine's speed from run to run, over that of repetitions inside a run.
DRIFT_WHEN_QUIET: Final = 1.0
DRIFT_WHEN_BUSY: Final = 1.5
# Scatter is never taken to be less than this: repetitions that agree by chance prove nothing.
LEAST_SCATTER: Final = 0.005
MIN_REPETITIONS: Final = 3  # of each run, below which nothing is called a difference
COMPARED: Final = (
    STEADY_AGAINST_NEIGHBOURS,
    "throughput.output_tokens_per_s",
    "latency.ttft_ms.p50",
    "latency.tpot_ms.p50",
    "latency.itl_ms.p99",
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """second / first."""

    value: float
    low: float
    high: float
    spread: float  # standard error of the logarithm, drift included
    freedom: float  # degrees of freedom of `spread`

    @property
    def detectable(self) -> float:
        """The relative difference that would have been found with POWER."""
        return math.expm1((_t_reach(self.freedom) + t_quantile(POWER, self.freedom)) * self.spread)

    @property
    def is_different(self) -> bool:
        return self.low > 1.0 or self.high < 1.0


def ratio_of(first: Sequence[float], second: Sequence[float], drift_factor: float) -> Ratio | None:
    """The ratio of the geometric means with its interval; None with too few values, or some not above 0."""
    if min(len(first), len(second)) < 2 or min(*first, *second) <= 0:
        return None
    logs = [[math.log(v) for v in values] for values in (first, second)]
    centre = statistics.fmean(logs[1]) - statistics.fmean(logs[0])
    floor = LEAST_SCATTER**2
    variances = [max(statistics.variance(v), floor) for v in logs]
    degrees = [len(v) - 1 for v in logs]
    pooled = math.fsum(v * d for v, d in zip(variances, degrees, strict=True)) / sum(degrees)
    # (variance, degrees of freedom) of what adds up: scatter of each run's mean, and drift of both runs.
    parts = [(v / len(x), d) for v, x, d in zip(variances, logs, degrees, strict=True)]
    parts.append((2 * drift_factor**2 * pooled, sum(degrees)))
    total = math.fsum(v for v, _ in parts)
    freedom = total**2 / math.fsum(v**2 / d for v, d in parts)
    spread = math.sqrt(total)
    half = _t_reach(freedom) * spread
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half), spread, freedom)


def _t_reach(freedom: float) -> float:
    return t_quantile(0.5 + LEVEL / 2, freedom)


@dataclass(frozen=True, slots=True)
class CellDifference:
    name: str
    first: Mapping[str, Any]
    second: Mapping[str, Any]
    ratios: Mapping[str, Ratio | None]  # by field
    notes: tuple[str, ...]

    def verdict(self, path: str) -> str:
        """A word on one field: faster, slower, better, worse, or that nothing can be said."""
        ratio, better = self.ratios.get(path), BY_PATH[path].better
        enough = min(len(c["repetitions"]) for c in (self.first, self.second)) >= MIN_REPETITIONS
        if ratio is None or not enough:
            return "too few values"
        if not ratio.is_different:
            return "no difference shown"
        is_good = (ratio.value > 1) == (better == "higher")
        return "better" if is_good else "worse"


@dataclass(frozen=True, slots=True)
class Comparison:
    cells: tuple[CellDifference, ...]
    only_first: tuple[str, ...]  # cells without a partner
    only_second: tuple[str, ...]
    objections: tuple[str, ...]  # why the runs may not be compared


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> Comparison:
    """Pairs cells of equal load and settings. InputError when there are none."""
    left = {_load_key(c): c for c in first["cells"]}
    right = {_load_key(c): c for c in second["cells"]}
    shared = [key for key in left if key in right]
    cells = []
    objections = _header_objections(first["header"], second["header"])
    for key in shared:
        a, b = left[key], right[key]
        if a["status"] != "ok" or b["status"] != "ok":
            continue
        objections += [f"{_name(a)}: {what}" for what in _cell_objections(a, b)]
        factor = DRIFT_WHEN_BUSY if _is_busy(a) or _is_busy(b) else DRIFT_WHEN_QUIET
        ratios = {path: ratio_of(_samples(a, path), _samples(b, path), factor) for path in COMPARED}
        cells.append(CellDifference(_name(a), a, b, ratios, _notes(a, b)))
    if not cells:
        raise InputError("the runs have no measured cell in common", "compare runs of the same sweep")
    return Comparison(
        tuple(cells),
        tuple(_name(c) for key, c in left.items() if key not in right),
        tuple(_name(c) for key, c in right.items() if key not in left),
        tuple(objections),
    )


def overlap(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether the intervals of the output rate overlap."""
    first, second = a["statistics"], b["statistics"]
    return bool(first["low"] <= second["high"] and second["low"] <= first["high"])


def _load_key(cell: Mapping[str, Any]) -> str:
    load = {k: v for k, v in cell["load"].items() if k not in ("repetitions", "warmup")}
    return repr(sorted({**load, **{f"engine.{k}": v for k, v in cell["engine"].items()}}.items()))


def _name(cell: Mapping[str, Any]) -> str:
    swept = ", ".join(f"{k} {v}" for k, v in cell["swept"].items())
    return swept or f"concurrency {cell['load']['concurrency']}"


def _is_busy(cell: Mapping[str, Any]) -> bool:
    return max(_samples(cell, "conditions.others_cpu_share"), default=0.0) > QUIET_SHARE


def _samples(cell: Mapping[str, Any], path: str) -> list[float]:
    values = (value_at(r, path) for r in cell["repetitions"])
    return [float(v) for v in values if v is not None]


# Parts of the header that must be equal, with the words for a difference.
_MUST_EQUAL: Final = (
    ("checkpoint.fingerprint", "the weights differ"),
    ("memory_and_disk.cpu", "the processors differ"),
    ("memory_and_disk.cores", "the numbers of cores differ"),
    ("runtime.numerics.precision", "the precisions differ"),
    ("runtime.numerics.kv_dtype", "the types of the KV cache differ"),
    ("runtime.numerics.isa", "the instruction sets differ"),
    ("runtime.num_threads", "the numbers of threads differ"),
    ("effort_and_context.context_limit", "the context limits differ"),
    ("task_mix.sha256", "the prompts differ"),
    ("slo", "the limits of the SLO differ"),
)


def _header_objections(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = []
    for path, words in _MUST_EQUAL:
        first, second = value_at(a, path), value_at(b, path)
        if first != second:
            found.append(f"{words}: {first} and {second}")
    return found


def _cell_objections(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = []
    hits = [value_at(c["values"], "lengths.prefix_hit_rate") for c in (a, b)]
    if None not in hits and abs(hits[0] - hits[1]) > 0.01:
        found.append(
            f"the prefix cache answered {100 * hits[0]:.0f} % and {100 * hits[1]:.0f} % of the prompts"
        )
    for what in ("input_tokens", "output_tokens"):
        means = [value_at(c["values"], f"lengths.{what}.mean") for c in (a, b)]
        if None not in means and abs(means[0] - means[1]) > 0.01 * max(means):
            found.append(f"mean {what.replace('_', ' ')} are {means[0]:.1f} and {means[1]:.1f}")
    return found


def _notes(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    if not (a["statistics"]["converged"] and b["statistics"]["converged"]):
        notes.append("not converged")
    if _is_busy(a) or _is_busy(b):
        notes.append("others were busy: wall times mean little")
    if a["index"] == b["index"] and a["output_hash"] != b["output_hash"]:  # prompts go by the cell's place
        notes.append("answers differ")
    return tuple(notes)


# ---- showing -----------------------------------------------------------------------------------------------

HEAD: Final = (
    *("cell", "field", "first", "second", "ratio", "95 % interval", "would show", "intervals", "verdict"),
    "note",
)


def rows_of(comparison: Comparison) -> list[list[str]]:
    """Lines for people: one per cell and field."""
    from deepinfer_cli.bench.tables import number

    rows = []
    for cell in comparison.cells:
        for path in COMPARED:
            ratio, unit = cell.ratios[path], BY_PATH[path].unit
            values = [number(value_at(c["values"], path), unit) for c in (cell.first, cell.second)]
            is_first = path == COMPARED[0]
            rows.append(
                [
                    cell.name if is_first else "",
                    path.split(".", 1)[1],
                    *values,
                    "" if ratio is None else f"{ratio.value:.3f}",
                    "" if ratio is None else f"{ratio.low:.3f} to {ratio.high:.3f}",
                    "" if ratio is None else f"± {100 * ratio.detectable:.0f} %",
                    _overlap_word(cell, path),
                    cell.verdict(path),
                    "; ".join(cell.notes) if is_first else "",
                ]
            )
    return rows


def _overlap_word(cell: CellDifference, path: str) -> str:
    if path != cell.first["statistics"]["field"]:
        return ""
    return "overlap" if overlap(cell.first, cell.second) else "apart"


def as_json(comparison: Comparison) -> dict[str, Any]:
    cells = []
    for cell in comparison.cells:
        fields = {
            path: {
                "ratio": None if ratio is None else ratio.value,
                "low": None if ratio is None else ratio.low,
                "high": None if ratio is None else ratio.high,
                "detectable": None if ratio is None else ratio.detectable,
                "verdict": cell.verdict(path),
            }
            for path, ratio in cell.ratios.items()
        }
        intervals = overlap(cell.first, cell.second)
        cells.append(
            {"cell": cell.name, "fields": fields, "intervals_overlap": intervals, "notes": list(cell.notes)}
        )
    return {
        "cells": cells,
        "only_first": list(comparison.only_first),
        "only_second": list(comparison.only_second),
        "objections": list(comparison.objections),
    }
