"""What is worth drawing of a run, as plain data; svg.py, png.py and text_plot.py draw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deepinfer_cli.bench.fields import value_at
from deepinfer_cli.bench.tables import swept_keys

_X: Final = "steps.decode_tokens_per_s_per_user"
_Y: Final = "throughput.output_tokens_per_s"
MAX_SERIES: Final = 8  # more could not be told apart


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    low: float  # interval of y
    high: float
    label: str


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: tuple[Point, ...]  # by concurrency


@dataclass(frozen=True, slots=True)
class Scatter:
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float  # 0 .. 1 of what the axis shows, may be above
    detail: str


@dataclass(frozen=True, slots=True)
class Bars:
    title: str
    x_title: str
    bars: tuple[Bar, ...]


def _measured(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [c for c in document["cells"] if c["status"] == "ok"]


def throughput_figure(document: Mapping[str, Any]) -> Scatter | None:
    """Output rate of all against decode speed of one; None when there is nothing to draw."""
    groups: dict[str, list[Point]] = {}
    for cell in _measured(document):
        x, y, stats = value_at(cell["values"], _X), value_at(cell["values"], _Y), cell["statistics"]
        if x is None or y is None:
            continue
        point = Point(x, y, stats["low"], stats["high"], str(cell["load"]["concurrency"]))
        groups.setdefault(_group_name(cell), []).append(point)
    if not groups:
        return None
    kept = list(groups.items())[:MAX_SERIES]
    left_out = len(groups) - len(kept)
    note = "numbers: requests in flight; bars: 95 % interval"
    if left_out:
        note += f"; {left_out} more series are in the table"
    return Scatter(
        "Throughput against speed for one user",
        "tokens/s of one request while it decodes",
        "output tokens/s of all",
        tuple(Series(name, tuple(points)) for name, points in kept),
        note,
    )


def _group_name(cell: Mapping[str, Any]) -> str:
    others = {k: v for k, v in cell["swept"].items() if k != "concurrency"}
    if not others:
        load = cell["load"]
        if load["input_len"] is None:
            return "own rows"
        return f"{load['input_len']} + {load['output_len']} tokens"
    return ", ".join(f"{k} {v}" for k, v in others.items())


def roofline_figure(document: Mapping[str, Any]) -> Bars | None:
    """Share of the machine's limit per cell; None without limits."""
    keys = swept_keys(document)
    bars = []
    for cell in _measured(document):
        share = value_at(cell["values"], "roofline.share")
        if share is None:
            continue
        merged = {**cell["load"], **cell["engine"], **cell["swept"]}
        label = ", ".join(f"{key} {merged[key]}" for key in keys)
        memory = value_at(cell["values"], "roofline.memory_bound_share") or 0.0
        bound = "memory" if memory > 0.5 else "compute"
        bars.append(Bar(label, share, f"{100 * share:.0f} % of {bound}"))
    if not bars:
        return None
    title = "Share of what this machine can do"
    return Bars(
        title, "least possible time / measured time, limits measured beside each repetition", tuple(bars)
    )


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round values from at most `low` to at least `high`."""
    import math

    if high <= low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.floor(low / step)
    last = math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:g}"


def all_points(series: Sequence[Series]) -> list[Point]:
    return [point for one in series for point in one.points]
