"""Verbs that work on saved runs: compare and plot; and the report of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepinfer_cli.bench import difference
from deepinfer_cli.bench.fields import FIELDS, value_at
from deepinfer_cli.bench.figures import Bars, Scatter, roofline_figure, throughput_figure
from deepinfer_cli.bench.record import read_document
from deepinfer_cli.bench.svg import bars_svg, scatter_svg
from deepinfer_cli.bench.tables import number, short_table
from deepinfer_cli.errors import InputError, UsageError

Figures = tuple[Scatter | None, Bars | None]


def figures_of(document: Mapping[str, Any]) -> Figures:
    return throughput_figure(document), roofline_figure(document)


def report_html(document: Mapping[str, Any]) -> str:
    from deepinfer_cli.report.bench_page import bench_page

    scatter, bars = figures_of(document)
    drawn = [scatter_svg(scatter, standalone=False)] if scatter else []
    drawn += [bars_svg(bars, standalone=False)] if bars else []
    head, rows = short_table(document)
    return bench_page(document, head, rows, drawn, [_full_cell(cell) for cell in document["cells"]])


def _full_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Every field that has a value, with its value in each repetition, as texts."""
    fields = []
    for spec in FIELDS:
        value = value_at(cell["values"], spec.path)
        if value is None:
            continue
        each = [number(value_at(r, spec.path), spec.unit) for r in cell["repetitions"]]
        unit = "" if spec.unit in ("share", "bytes") else spec.unit  # the number says it
        fields.append([spec.path, number(value, spec.unit), unit, each, spec.definition])
    name = ", ".join(f"{k} {v}" for k, v in cell["swept"].items()) or "one point"
    return {"name": name, "status": cell["status"], "reason": cell["reason"], "fields": fields}


def compared(first: Path, second: Path, *, force: bool) -> difference.Comparison:
    """The comparison of two saved runs, unless something speaks against it."""
    found = difference.compare(read_document(first), read_document(second))
    if found.objections and not force:
        shown = "; ".join(found.objections[:3])
        more = len(found.objections) - 3
        raise UsageError(
            f"{first} and {second} may not be compared: {shown}{f'; and {more} more' if more > 0 else ''}",
            "--force compares them all the same",
        )
    return found


def comparison_json(found: difference.Comparison) -> str:
    return json.dumps(difference.as_json(found), ensure_ascii=False, allow_nan=False, indent=1)


def write_plots(document: Mapping[str, Any], folder: Path, form: str) -> list[Path]:
    """Draws what there is; the files written."""
    scatter, bars = figures_of(document)
    if scatter is None and bars is None:
        raise InputError("no cell of this run was measured, so there is nothing to draw")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _draw(scatter, bars, folder, form)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}", "--save DIR") from None


def _draw(scatter: Scatter | None, bars: Bars | None, folder: Path, form: str) -> list[Path]:
    from deepinfer_cli.bench import png

    written = []
    if scatter is not None:
        written.append(folder / f"throughput.{form}")
        if form == "png":
            png.scatter_png(scatter, written[-1])
        else:
            written[-1].write_text(scatter_svg(scatter) + "\n", encoding="utf-8")
    if bars is not None:
        written.append(folder / f"roofline.{form}")
        if form == "png":
            png.bars_png(bars, written[-1])
        else:
            written[-1].write_text(bars_svg(bars) + "\n", encoding="utf-8")
    return written
