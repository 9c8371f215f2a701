"""report.html of a benchmark: plots, table, everything the header pins, and the command to replay."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deepinfer_cli.report.page import page

_HEADER_TITLES: Final[Mapping[str, str]] = {
    "checkpoint": "Checkpoint and quantisation",
    "runtime": "Runtime and file layout",
    "effort_and_context": "Reasoning effort and context",
    "memory_and_disk": "Memory and disk",
    "task_mix": "Task mix",
    "decode_speed": "Decode speed at these contexts",
    "basis": "Basis of comparison",
}


def bench_page(
    document: Mapping[str, Any],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    figures: Sequence[str],
    full_cells: Sequence[Mapping[str, Any]],
) -> str:
    """`head` and `rows`: the short table; `figures`: inline SVG; `full_cells`: every field of each cell,
    as the script shows it."""
    h = document["header"]
    title = f"Benchmark of {h['checkpoint']['name'].rsplit('/', 1)[-1]}"
    cells = document["cells"]
    statuses = [str(cell["status"]) for cell in cells]
    drawn = "".join(f"<figure>{figure}</figure>" for figure in figures)
    drawn = f'<div class="figures">{drawn}</div>' if drawn else ""
    body = (
        f"<header><h1>{html.escape(title)}</h1>\n"
        f'<p class="headline">{html.escape(_headline(document))}</p></header>\n<main>\n'
        f"{drawn or '<p>No cell was measured, so there is nothing to draw.</p>'}\n"
        f"<h2>Cells</h2>\n{_table(head, rows, statuses)}\n"
        f"<h2>Replay</h2>\n<pre>{html.escape(h['command'])}</pre>\n"
        f"<h2>What these numbers belong to</h2>\n{_pinned(h)}\n"
        '<h2>One cell in full</h2>\n<p><label>Cell <select id="cell"></select></label></p>\n'
        '<div id="full"></div>\n</main>'
    )
    return page(title, body, {"cells": full_cells}, style="bench.css", script="bench.js")


def _headline(document: Mapping[str, Any]) -> str:
    cells, h = document["cells"], document["header"]
    ok = sum(cell["status"] == "ok" for cell in cells)
    sure = sum(bool((cell["statistics"] or {}).get("converged")) for cell in cells)
    where = h["memory_and_disk"]
    return (
        f"{ok} of {len(cells)} cells measured, {sure} of them certain to 5 %; {where['cpu']}, "
        f"{where['cores']} cores; {h['runtime']['engine']}, commit {h['runtime']['commit'] or 'unknown'}; "
        f"{h['time']}"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], statuses: Sequence[str]) -> str:
    titles = "".join(f"<th>{html.escape(title)}</th>" for title in head)
    lines = []
    for row, status in zip(rows, statuses, strict=True):
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        lines.append(f'<tr class="{status}">{cells}</tr>')
    body = "".join(lines)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _pinned(header: Mapping[str, Any]) -> str:
    parts = []
    for key, title in _HEADER_TITLES.items():
        parts.append(f"<details><summary>{title}</summary>{_definition(header[key])}</details>")
    build = {"slo": header["slo"], "price_per_hour": header["price_per_hour"], "run": header["run_id"]}
    parts.append(
        f"<details><summary>Build and limits</summary>{_definition({**header['build'], **build})}</details>"
    )
    return "\n".join(parts)


def _definition(value: Any) -> str:
    if isinstance(value, list):
        lines = [", ".join(f"{k} {_plain(v)}" for k, v in item.items()) for item in value]
        return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>"
    pairs = [f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(_plain(v))}</dd>" for k, v in value.items()]
    return f"<dl>{''.join(pairs)}</dl>"


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
