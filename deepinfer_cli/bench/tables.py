"""A run as Markdown, CSV, JSON, JSONL, and as a table on a terminal: views of one document."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deepinfer_cli.bench.fields import FIELDS, Field, value_at

FORMATS: Final = ("table", "md", "csv", "json", "jsonl")
_MARKS: Final = {"ok": "", "failed": "failed", "skipped": "not measured"}


def number(value: Any, unit: str) -> str:
    """A value for people; empty where there is none."""
    if value is None:
        return ""
    if unit == "share":
        return f"{100 * value:.1f} %"
    if unit == "bytes":
        return f"{value / 2**20:,.0f} MiB"
    if unit == "money":
        return f"{value:.4g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def columns(document: Mapping[str, Any]) -> list[Field]:
    """The fields of the short table: those with a title that some cell has a value for."""
    cells = document["cells"]
    slo_set = any(v is not None for v in document["header"]["slo"].values())
    chosen = []
    for spec in FIELDS:
        is_there = any(value_at(c["values"], spec.path) is not None for c in cells)
        if spec.title and is_there and (slo_set or not spec.path.startswith("goodput.good")):
            chosen.append(spec)
    return chosen


def swept_keys(document: Mapping[str, Any]) -> list[str]:
    """Keys that vary, in the order of the sweep; the load of a single point."""
    cells = document["cells"]
    keys = list(dict.fromkeys(key for cell in cells for key in cell["swept"]))
    return keys or ["concurrency", "input_len", "output_len"]


def row_of(cell: Mapping[str, Any], keys: Sequence[str], fields: Sequence[Field]) -> list[str]:
    """One line of the short table: swept keys, ± of the output rate, fields, and what is to be said."""
    merged = {**cell["load"], **cell["engine"], **cell["swept"]}
    words = [_word(merged.get(key)) for key in keys]
    stats = cell["statistics"]
    if stats is None:
        return [*words, *[""] * (len(fields) + 1), f"{_MARKS[cell['status']]}: {cell['reason']}"]
    width = stats["relative_width"]
    spread = "" if width is None else f"± {100 * width:.1f} %"
    notes = [*_against_words(cell["against"]), *stats["notes"]]
    if not stats["converged"]:
        notes.insert(0, "not converged")
    return [
        *words,
        *[number(value_at(cell["values"], f.path), f.unit) for f in fields],
        spread,
        "; ".join(notes),
    ]


def _against_words(against: Mapping[str, Any] | None) -> list[str]:
    """The ratios to the peer: above 1, this engine is faster."""
    if against is None:
        return []
    words = []
    for name, clock in (("wall", "wall time"), ("cpu", "CPU time")):
        ratio = against[name]
        if ratio is not None:
            words.append(
                f"{ratio['value']:.2f}x the peer by {clock} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
            )
    if against["error"] is not None:
        words.append(f"peer failed {against['num_failed']} times: {against['error']}")
    return words


def head_of(keys: Sequence[str], fields: Sequence[Field]) -> list[str]:
    units = {"ms": " ms"}
    return [*keys, *[f.title + units.get(f.unit, "") for f in fields], "± out", "note"]


def short_table(
    document: Mapping[str, Any], fields: Sequence[Field] | None = None
) -> tuple[list[str], list[list[str]]]:
    """(head, rows) of the table that people see, with these fields or all that have a title and a value."""
    keys = swept_keys(document)
    fields = columns(document) if fields is None else fields
    return head_of(keys, fields), [row_of(cell, keys, fields) for cell in document["cells"]]


# What a narrow terminal can do without, the most dispensable first.
_DISPENSABLE: Final = (
    "memory.peak_rss_bytes",
    "goodput.good_requests_per_s",
    "latency.itl_ms.p99",
    "throughput.total_tokens_per_cpu_s",
    "conditions.others_cpu_share",
    "latency.tpot_ms.p50",
    "goodput.good_share",
    "lengths.prefix_hit_rate",
    "goodput.cost_per_million_output_tokens",
    "latency.ttft_ms.p50",
)
_NOTE_WIDTH: Final = 24  # at least, for what is to be said about a cell
_GAP: Final = 2  # between columns


def fitting_fields(document: Mapping[str, Any], width: int) -> tuple[list[Field], list[Field]]:
    """(fields whose columns fit into `width` characters, those left out)."""
    fields, left_out = columns(document), []
    for path in _DISPENSABLE:
        head, rows = short_table(document, fields)
        widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head) - 1)]
        if sum(widths) + _GAP * len(widths) + _NOTE_WIDTH <= width:
            break
        left_out += [f for f in fields if f.path == path]
        fields = [f for f in fields if f.path != path]
    return fields, left_out


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)


# ---- files -------------------------------------------------------------------------------------------------


def as_markdown(document: Mapping[str, Any]) -> str:
    return "\n".join([*summary_lines(document), "", markdown_table(*short_table(document))]) + "\n"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_md_line(head), _md_line(["---"] * len(head)), *map(_md_line, rows)])


def _md_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def summary_lines(document: Mapping[str, Any]) -> list[str]:
    """What the numbers belong to, in a few lines."""
    h = document["header"]
    disk, runtime = h["memory_and_disk"], h["runtime"]
    types = ", ".join(h["checkpoint"]["quantisation"] or {}) or "no weights"
    numerics = runtime.get("numerics") or {}
    how = ", ".join(str(numerics[k]) for k in ("precision", "kv_dtype", "isa") if numerics.get(k))
    dirty = " with changes" if h["build"].get("dirty") else ""
    return [
        f"model {h['checkpoint']['name']} ({types}), {runtime['file_layout']}",
        f"{runtime['engine']}, commit {runtime['commit'] or 'unknown'}{dirty}; {how}; "
        f"{runtime.get('num_threads', '?')} threads",
        f"{disk['cpu']}, {disk['cores']} cores, {disk['memory_bytes'] / 2**30:.0f} GiB; {h['time']}",
        f"prompts: {h['task_mix']['prompts']}; prefix cache {h['task_mix']['prefix_cache']}",
        f"replay: {h['command']}",
    ]


def flat_row(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A cell as one flat row: identity, load, engine, statistics, every field."""
    row: dict[str, Any] = {"key": cell["key"], "status": cell["status"], "reason": cell["reason"]}
    row |= {f"load.{key}": value for key, value in cell["load"].items()}
    row |= {f"engine.{key}": value for key, value in cell["engine"].items()}
    stats = cell["statistics"] or {}
    for name in ("repetitions", "low", "high", "relative_width", "converged"):
        row[f"statistics.{name}"] = stats.get(name)
    for name in ("wall", "cpu"):
        ratio = (cell["against"] or {}).get(name) or {}
        row |= {f"against.{name}.{part}": ratio.get(part) for part in ("value", "low", "high", "num_pairs")}
    row |= {spec.path: value_at(cell["values"], spec.path) for spec in FIELDS}
    return row | {"output_hash": cell["output_hash"]}


def as_csv(document: Mapping[str, Any]) -> str:
    rows = [flat_row(cell) for cell in document["cells"]]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", restval="")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value is None else value for name, value in row.items()})
    return text.getvalue()


def as_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def as_jsonl(document: Mapping[str, Any]) -> str:
    """One line per cell, each with the header's identity, so that files of several runs can be joined."""
    h = document["header"]
    identity = {"run_id": h["run_id"], "time": h["time"], "build": h["build"], "checkpoint": h["checkpoint"]}
    lines = [
        json.dumps(
            {"schema_version": document["schema_version"], **identity, **cell},
            ensure_ascii=False,
            allow_nan=False,
        )
        for cell in document["cells"]
    ]
    return "".join(f"{line}\n" for line in lines)


def rendered(document: Mapping[str, Any], form: str) -> str:
    """The document in one of FORMATS but `table`."""
    make = {"md": as_markdown, "csv": as_csv, "json": as_json, "jsonl": as_jsonl}
    return make[form](document)


# ---- terminal ----------------------------------------------------------------------------------------------


def terminal_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    styles: Sequence[str] = (),
    color: bool,
) -> str:
    """A table drawn by rich; what is wider than `width` folds inside its cells. `styles`: one per row."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, expand=False)
    for i, title in enumerate(head):
        is_text = i == len(head) - 1 or not any(_is_number(row[i]) for row in rows)
        table.add_column(Text(title), justify="left" if is_text else "right", overflow="fold")
    for i, row in enumerate(rows):
        table.add_row(*map(Text, row), style=styles[i] if styles else "")
    screen = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        markup=False,
    )
    with screen.capture() as capture:
        screen.print(table)
    return capture.get().strip("\n").rstrip()


def _is_number(text: str) -> bool:
    return text[:1].isdigit()
