"""What a torture run found: one line a fault, compared row by row, as a table, as JSON and for the page."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import zstandard

HEADS = ("fault", "times injected", "rows checked", "lost", "duplicated", "changed")


@dataclass
class Tally:
    """Of one job, or of all jobs with the same fault."""

    injected: int = 0
    rows_checked: int = 0
    lost: int = 0
    duplicated: int = 0
    changed: int = 0
    failures: list[str] = field(default_factory=list)  # anything else that must not happen, in words
    figures: dict[str, Any] = field(default_factory=dict)  # measured, not judged
    not_run: str = ""  # why nothing was done

    def add(self, other: Tally) -> None:
        self.injected += other.injected
        self.rows_checked += other.rows_checked
        self.lost += other.lost
        self.duplicated += other.duplicated
        self.changed += other.changed
        self.failures += other.failures
        for name, value in other.figures.items():
            is_count = isinstance(value, int) and name in self.figures
            self.figures[name] = self.figures[name] + value if is_count else value
        self.not_run = self.not_run or other.not_run

    def compare(self, expected: bytes, found: bytes, what: str) -> None:
        """Counts how the rows of `found` differ from what an uninterrupted run wrote."""
        want, got = _by_index(expected.splitlines(keepends=True)), _by_index(found.splitlines(keepends=True))
        counts = Counter(index for index, _ in got)
        lines, wanted = dict(got), dict(want)
        lost = sum(index not in counts for index, _ in want)
        duplicated = sum(count - 1 for count in counts.values())
        changed = sum(index in lines and lines[index] != line for index, line in want)
        changed += sum(index not in wanted for index in counts)
        if expected != found and not lost + duplicated + changed:
            changed = 1  # same rows, other order
        if lost + duplicated + changed:
            self.failures.append(f"{what}: {lost} lost, {duplicated} duplicated, {changed} changed")
        self.rows_checked += len(want)
        self.lost += lost
        self.duplicated += duplicated
        self.changed += changed

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.changed or self.failures)


def _by_index(lines: Iterable[bytes]) -> list[tuple[Any, bytes]]:
    """(index of the row, its line); what is no row stands for itself."""
    result: list[tuple[Any, bytes]] = []
    for line in lines:
        try:
            row = json.loads(line)
            own = row if "index" in row else row["response"]["body"]["deepinfer"]
            result.append((own["index"], line))
        except (ValueError, KeyError, TypeError):
            result.append((line, line))
    return result


def in_order(data: bytes) -> bytes:
    """Rows of a run in completion order, sorted by their place in the input."""
    rows = _by_index(data.splitlines(keepends=True))
    return b"".join(line for _, line in sorted(rows, key=lambda row: (isinstance(row[0], bytes), row[0])))


def plain(path: Path) -> bytes:
    """An output's rows, decompressed by its suffix as far as it goes; a missing file has none."""
    if not path.exists():
        return b""
    data = path.read_bytes()
    if path.suffix not in (".gz", ".zst"):
        return data
    parts: list[bytes] = []
    with contextlib.suppress(zlib.error, zstandard.ZstdError):
        while data:
            if path.suffix == ".gz":
                gz = zlib.decompressobj(31)
                parts.append(gz.decompress(data))
                data = gz.unused_data
            else:
                zst = zstandard.ZstdDecompressor().decompressobj()
                parts.append(zst.decompress(data))
                data = zst.unused_data
    return b"".join(parts)


def record(tallies: dict[str, Tally], about: dict[str, Any]) -> dict[str, Any]:
    """The JSON document of a run."""
    faults = [{"fault": name, **asdict(tally), "clean": tally.is_clean} for name, tally in tallies.items()]
    return {"what": "rows after injected faults, against an uninterrupted run", **about, "faults": faults}


def _cells(fault: dict[str, Any]) -> tuple[str, ...]:
    if fault["not_run"]:
        return (fault["fault"], "not run", "", "", "", "")
    numbers = ("injected", "rows_checked", "lost", "duplicated", "changed")
    return (fault["fault"], *(f"{fault[key]:,}" for key in numbers))


def table(document: dict[str, Any]) -> str:
    """For a terminal."""
    rows = [HEADS, *map(_cells, document["faults"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    lines = []
    for row in rows:
        first, *rest = row
        numbers = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        lines.append("  ".join((first.ljust(widths[0]), *numbers)).rstrip())
    return "\n".join((lines[0], "-" * len(lines[0]), *lines[1:]))


def remarks(document: dict[str, Any]) -> list[str]:
    """What the table has no place for: figures, what did not run and why, failures."""
    lines = []
    for fault in document["faults"]:
        name = fault["fault"]
        lines += [f"{name}: {key} {value}" for key, value in fault["figures"].items()]
        if fault["not_run"]:
            lines.append(f"{name}: not run: {fault['not_run']}")
        lines += [f"FAILED {name}: {text}" for text in fault["failures"]]
    return lines


def markdown(document: dict[str, Any]) -> str:
    """The table of docs/reliability.md and what it was measured with."""
    about = document["machine"]
    taken = (
        f"{about['date']}, commit {about['commit']}, {about['cpu']} ({about['num_cpus']} CPUs), Linux "
        f"{about['kernel']}; `{document['command']}`, seed {document['seed']}, "
        f"{document['wall_seconds'] / 60:.0f} minutes, {document['cpu_seconds'] / 60:.0f} CPU minutes."
    )
    rows = [_markdown_row(HEADS), "| --- |" + " ---: |" * (len(HEADS) - 1)]
    rows += [_markdown_row(_cells(fault)) for fault in document["faults"]]
    said = [f"- {line}" for line in remarks(document)]
    return "\n".join((taken, "", *rows, "", *said)).rstrip() + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
