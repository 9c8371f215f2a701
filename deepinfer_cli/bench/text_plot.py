"""Figures as text for a terminal."""

from __future__ import annotations

from typing import Final

from deepinfer_cli.bench.figures import Bars, Scatter, all_points, nice_ticks, tick_text

_MARKS: Final = "ox+*#%@&"
_ROWS: Final = 16
_BAR_WIDTH: Final = 40


def scatter_text(figure: Scatter, width: int) -> str:
    """A grid of characters; each series has a mark, and the concurrency stands beside it."""
    points = all_points(figure.series)
    xs, ys = nice_ticks(0.0, max(p.x for p in points)), nice_ticks(0.0, max(p.y for p in points))
    margin = max(len(tick_text(v)) for v in ys) + 1
    columns = max(20, width - margin - 10)
    grid = [[" "] * (columns + 8) for _ in range(_ROWS + 1)]
    for series, mark in zip(figure.series, _MARKS, strict=False):
        for point in series.points:
            row = _ROWS - round(_ROWS * point.y / ys[-1])
            column = round((columns - 1) * point.x / xs[-1])
            for i, char in enumerate(mark + point.label):
                if grid[row][column + i] == " " or i == 0:
                    grid[row][column + i] = char
    labels = {_ROWS - round(_ROWS * v / ys[-1]): tick_text(v) for v in ys}
    lines = [figure.title, f"{figure.y_title}"]
    lines += [f"{labels.get(i, ''):>{margin}}|{''.join(row).rstrip()}" for i, row in enumerate(grid)]
    lines.append(" " * margin + "+" + "-" * columns)
    axis = [" "] * (columns + 8)
    for value in xs:
        text, column = tick_text(value), round((columns - 1) * value / xs[-1])
        axis[column : column + len(text)] = text
    lines.append(" " * (margin + 1) + "".join(axis).rstrip())
    lines.append(f"{figure.x_title:>{margin + columns}}")
    lines += [f"  {mark} {s.name}" for s, mark in zip(figure.series, _MARKS, strict=False)]
    return "\n".join(lines)


def bars_text(figure: Bars, width: int) -> str:
    label = max(len(bar.label) for bar in figure.bars)
    room = max(10, min(_BAR_WIDTH, width - label - 24))
    lines = [figure.title]
    for bar in figure.bars:
        filled = min(room, round(room * bar.value))
        lines.append(f"{bar.label:>{label}} |{'#' * filled:<{room}}| {bar.detail}")
    return "\n".join(lines)
