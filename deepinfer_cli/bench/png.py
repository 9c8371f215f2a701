"""Figures as PNG, drawn by matplotlib (the extra `bench`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deepinfer_cli.bench.figures import Bars, Scatter
from deepinfer_cli.bench.svg import COLORS
from deepinfer_cli.errors import UsageError

_MARKERS = ("o", "s", "^", "D")


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure that needs no display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "PNG needs matplotlib", 'pip install "deepinfer-cli[bench]", or --format svg'
        ) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def scatter_png(scatter: Scatter, path: Path) -> None:
    figure, axes = _figure(7.2, 4.6)
    for i, series in enumerate(scatter.series):
        xs, ys = [p.x for p in series.points], [p.y for p in series.points]
        reach = [
            [max(0.0, p.y - p.low) for p in series.points],
            [max(0.0, p.high - p.y) for p in series.points],
        ]
        axes.errorbar(
            xs, ys, yerr=reach, marker=_MARKERS[i % 4], color=COLORS[i], label=series.name, capsize=3, lw=1.2
        )
        for p in series.points:
            axes.annotate(p.label, (p.x, p.y), textcoords="offset points", xytext=(6, 5), fontsize=8)
    axes.set(title=scatter.title, xlabel=scatter.x_title, ylabel=scatter.y_title)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, title=scatter.note, title_fontsize=7)
    figure.savefig(path, dpi=150)


def bars_png(bars: Bars, path: Path) -> None:
    figure, axes = _figure(7.2, 1.4 + 0.32 * len(bars.bars))
    places = range(len(bars.bars))
    drawn = axes.barh(places, [100 * bar.value for bar in bars.bars], color=COLORS[0])
    axes.bar_label(drawn, [bar.detail for bar in bars.bars], padding=4, fontsize=8)
    axes.set_yticks(places, [bar.label for bar in bars.bars], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, max(115.0, *(130 * bar.value for bar in bars.bars)))
    axes.set(title=bars.title)
    axes.set_xlabel(f"% ({bars.x_title})", fontsize=8)
    figure.savefig(path, dpi=150)
