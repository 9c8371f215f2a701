"""Figures as SVG: small, without scripts, readable on light and dark ground (text has the page's colour)."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from deepinfer_cli.bench.figures import Bars, Scatter, Series, all_points, nice_ticks, tick_text

# Eight colours that stay apart under the common colour blindnesses, and on white and near-black alike.
COLORS: Final = ("#2a78d6", "#d9730d", "#1f9d6b", "#b0409b", "#c0362c", "#7a6ff0", "#8a7a00", "#5b8291")
_WIDTH: Final = 720
_FONT: Final = 'font-family="system-ui, sans-serif"'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {more}>'
        f"{html.escape(text)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {more}/>'


def _document(width: int, height: int, title: str, parts: Sequence[str], *, standalone: bool) -> str:
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>' if standalone else ""
    color = ' color="#1b1f24"' if standalone else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{html.escape(title)}" fill="currentColor" {_FONT}{color}>'
        f"{ground}{''.join(parts)}</svg>"
    )


def _marker(kind: int, x: float, y: float, color: str) -> str:
    """A point; series differ in shape as well as in colour."""
    r = 5.0
    if kind % 4 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="{color}"/>'
    shapes = {
        1: [(-r, -r), (r, -r), (r, r), (-r, r)],
        2: [(0, -1.3 * r), (1.2 * r, r), (-1.2 * r, r)],
        3: [(0, -1.3 * r), (1.3 * r, 0), (0, 1.3 * r), (-1.3 * r, 0)],
    }
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in shapes[kind % 4])
    return f'<polygon points="{points}" fill="{color}"/>'


def scatter_svg(figure: Scatter, *, standalone: bool = True) -> str:
    legend_rows = len(figure.series)
    left, right, top = 74.0, _WIDTH - 24.0, 40.0
    height = 400 + 20 * legend_rows
    bottom = 340.0
    points = all_points(figure.series)
    xs = nice_ticks(0.0, max(p.x for p in points))
    ys = nice_ticks(0.0, max(max(p.high, p.y) for p in points))

    def at_x(value: float) -> float:
        return left + (right - left) * value / xs[-1]

    def at_y(value: float) -> float:
        return bottom - (bottom - top) * value / ys[-1]

    parts = [_text(left, 22, figure.title, size=15, more='font-weight="600"')]
    grid = 'stroke="currentColor" stroke-opacity="0.15"'
    for value in ys:
        parts.append(_line(left, at_y(value), right, at_y(value), grid))
        parts.append(_text(left - 8, at_y(value) + 4, tick_text(value), anchor="end"))
    for value in xs:
        parts.append(_line(at_x(value), top, at_x(value), bottom, grid))
        parts.append(_text(at_x(value), bottom + 18, tick_text(value), anchor="middle"))
    parts.append(_text((left + right) / 2, bottom + 38, figure.x_title, anchor="middle"))
    middle = (top + bottom) / 2
    parts.append(
        _text(18, middle, figure.y_title, anchor="middle", more=f'transform="rotate(-90 18 {middle:.1f})"')
    )
    for i, series in enumerate(figure.series):
        parts += _series(i, series, at_x, at_y)
        y = bottom + 62 + 20 * i
        parts += [_marker(i, left + 6, y - 4, COLORS[i]), _text(left + 20, y, series.name)]
    if figure.note:
        parts.append(_text(right, bottom + 62, figure.note, anchor="end", more='fill-opacity="0.7"'))
    return _document(_WIDTH, height, figure.title, parts, standalone=standalone)


def _series(i: int, series: Series, at_x: object, at_y: object) -> list[str]:
    assert callable(at_x) and callable(at_y)
    color = COLORS[i]
    path = " ".join(f"{at_x(p.x):.1f},{at_y(p.y):.1f}" for p in series.points)
    parts = [
        f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5" stroke-opacity="0.6"/>'
    ]
    for p in series.points:
        x, y = at_x(p.x), at_y(p.y)
        stroke = f'stroke="{color}" stroke-width="1.5"'
        parts.append(_line(x, at_y(p.low), x, at_y(p.high), stroke))
        parts += [_line(x - 4, at_y(v), x + 4, at_y(v), stroke) for v in (p.low, p.high)]
        parts += [_marker(i, x, y, color), _text(x + 8, y - 7, p.label, size=11)]
    return parts


def bars_svg(figure: Bars, *, standalone: bool = True) -> str:
    left, right, top, step = 230.0, _WIDTH - 130.0, 44.0, 26
    height = int(top) + step * len(figure.bars) + 54
    ticks = nice_ticks(0.0, max(1.0, *(bar.value for bar in figure.bars)))
    bottom = top + step * len(figure.bars)

    def at(value: float) -> float:
        return left + (right - left) * value / ticks[-1]

    parts = [_text(16, 22, figure.title, size=15, more='font-weight="600"')]
    for value in ticks:
        parts.append(
            _line(at(value), top - 6, at(value), bottom, 'stroke="currentColor" stroke-opacity="0.15"')
        )
        parts.append(_text(at(value), bottom + 18, f"{100 * value:.0f} %", anchor="middle"))
    for i, bar in enumerate(figure.bars):
        y = top + step * i
        width = max(1.0, at(bar.value) - left)
        parts.append(_text(left - 10, y + 13, bar.label, anchor="end"))
        parts.append(
            f'<rect x="{left}" y="{y:.1f}" width="{width:.1f}" height="17" rx="2" fill="{COLORS[0]}"/>'
        )
        parts.append(_text(left + width + 8, y + 13, bar.detail))
    parts.append(_text((left + right) / 2, bottom + 38, figure.x_title, anchor="middle"))
    return _document(_WIDTH, height, figure.title, parts, standalone=standalone)
