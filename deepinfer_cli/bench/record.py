"""What a benchmark leaves behind: a header, cells with their repetitions, and the journal they grow in.

The data model, and with it the schema of `cells.json`:

    {"schema_version": 1, "header": {...}, "cells": [Cell, ...]}

    Cell: {"key", "index", "swept": {...}, "load": {...}, "engine": {...},
           "status": "ok" | "failed" | "skipped", "reason": str | null,
           "values": nested medians over repetitions (bench/fields.py),
           "statistics": {"repetitions", "median", "low", "high", "relative_width", "converged", "notes"},
           "against": {"wall": ratio, "cpu": ratio, "num_failed", "error"} | null,
           "output_hash": str | null, "finish_reasons": {...},
           "repetitions": [nested values of each, ...]}

A journal line is {"kind": "run", ...}, {"kind": "repetition", "key", "values"} or {"kind": "failure", "key",
"reason"}; lines are only ever appended: an end at any moment loses at most the repetition in progress.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deepinfer_cli.bench.fields import FIELDS, PRIMARY, nested, value_at
from deepinfer_cli.bench.pairs import pair_ratios, pairs_width
from deepinfer_cli.bench.spec import Cell
from deepinfer_cli.errors import InputError, OutputError
from deepinfer_cli.stats.bootstrap import median_estimate

SCHEMA_VERSION: Final = 1
JOURNAL: Final = "repetitions.jsonl"
CELLS: Final = "cells.json"
CONVERGED_WIDTH: Final = 0.05  # half of the 95 % interval of the median, relative to it
OUTLIER_REACH: Final = 6.0  # median distances; about four standard deviations of a normal distribution
QUIET_SHARE: Final = 0.1  # of the machine that others may use before wall times are doubted


@dataclass(slots=True)
class CellResult:
    """A cell and what was measured of it so far."""

    cell: Cell
    key: str
    repetitions: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None

    @property
    def status(self) -> str:
        if self.failure is not None:
            return "failed"
        return "ok" if self.repetitions else "skipped"

    def samples(self, path: str) -> list[float]:
        """The repetitions' values of one field, missing ones left out."""
        found = (value_at(r, path) for r in self.repetitions)
        return [float(v) for v in found if v is not None]

    @property
    def relative_width(self) -> float:
        """How uncertain the cell is: of its ratio to the peer, or of its own rate when it has none."""
        if any("peer" in r and "error" not in r["peer"] for r in self.repetitions):
            return pairs_width(self.repetitions)
        values = self.samples(PRIMARY)
        return median_estimate(values).relative_width if values else math.inf

    def as_json(self) -> dict[str, Any]:
        is_ok = self.status == "ok"
        medians = {}
        for spec in FIELDS:
            values = self.samples(spec.path) if is_ok else []
            medians[spec.path] = statistics.median(values) if values else None
        return {
            "key": self.key,
            "index": self.cell.index,
            "swept": dict(self.cell.swept),
            **self.cell.as_json(),
            "status": self.status,
            "reason": self.failure if self.status == "failed" else self._why_skipped(),
            "values": nested(medians),
            "statistics": self._statistics() if is_ok else None,
            "against": self._against() if is_ok else None,
            "output_hash": self._output_hash(),
            "finish_reasons": self._finish_reasons(),
            "repetitions": self.repetitions,
        }

    def _why_skipped(self) -> str | None:
        return "the time budget ended, or the run was interrupted" if self.status == "skipped" else None

    def _statistics(self) -> dict[str, Any]:
        estimate = median_estimate(self.samples(PRIMARY))
        width = estimate.relative_width
        notes = []
        if max(self.samples("conditions.others_cpu_share"), default=0.0) > QUIET_SHARE:
            notes.append("busy machine")
        if max(self.samples("roofline.share"), default=0.0) > 1.0:
            notes.append("above the limit: its measurement was disturbed")
        if outliers := num_outliers(self.samples(PRIMARY)):
            notes.append(f"{outliers} of {len(self.repetitions)} repetitions far off")
        if len(set(self._hashes())) > 1 and self.cell.load.prompts == "repeated":
            notes.append("outputs differed between repetitions")
        if self.cell.load.concurrency >= self.cell.num_prompts:
            notes.append("all at once: TTFT is mostly waiting")
        return {
            "field": PRIMARY,
            "repetitions": estimate.num_values,
            "median": estimate.median,
            "low": estimate.low,
            "high": estimate.high,
            "relative_width": None if math.isinf(width) else width,
            "converged": width <= CONVERGED_WIDTH,
            "notes": notes,
        }

    def _against(self) -> dict[str, Any] | None:
        """Ratios to the peer, pair by pair; None when there was none."""
        parts = [r["peer"] for r in self.repetitions if r.get("peer")]
        if not parts:
            return None
        errors = [str(p["error"]) for p in parts if "error" in p]
        ratios = {
            name: None if ratio is None else dataclasses.asdict(ratio)
            for name, ratio in pair_ratios(self.repetitions).items()
        }
        return {
            **ratios,
            "num_failed": len(errors),
            "error": errors[-1] if errors else None,
        }

    def _hashes(self) -> list[str]:
        return [str(value_at(r, "correctness.output_hash")) for r in self.repetitions]

    def _output_hash(self) -> str | None:
        """Of the first repetition: same sweep, seed and arithmetic, same hash, on any machine."""
        return self._hashes()[0] if self.status == "ok" else None

    def _finish_reasons(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for repetition in self.repetitions if self.status == "ok" else ():
            for reason, count in repetition["correctness"]["finish_reasons"].items():
                total[reason] = total.get(reason, 0) + count
        return total


def num_outliers(values: Sequence[float]) -> int:
    """Values further from the median than OUTLIER_REACH times the median distance; 0 below five values. They
    are counted, not left out."""
    if len(values) < 5:
        return 0
    middle = statistics.median(values)
    distance = statistics.median(abs(v - middle) for v in values)
    return sum(abs(v - middle) > OUTLIER_REACH * max(distance, 0.01 * abs(middle)) for v in values)


class Journal:
    """The append-only file of a saved run; without a folder, nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._file = None
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / JOURNAL
                _cut_torn_tail(path)
                self._file = path.open("ab")
            except OSError as error:
                raise OutputError(f"cannot write {folder}: {error.strerror}") from None

    def append(self, kind: str, **values: Any) -> None:
        if self._file is None:
            return
        line = json.dumps({"kind": kind, **values}, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            self._file.write(line.encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OutputError(f"cannot write {self._folder}/{JOURNAL}: {error.strerror}") from None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _cut_torn_tail(path: Path) -> None:
    """A line that a crash cut short ends nothing: it goes."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """Whole lines of a folder's journal; none when there is no journal."""
    path = folder / JOURNAL
    if not path.exists():
        return []
    found = []
    lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last newline was torn
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise InputError(
                f"{path}: line {number} is damaged", "remove the line, or use another --save"
            ) from None
    return found


def restore(results: Sequence[CellResult], journal: Sequence[Mapping[str, Any]]) -> int:
    """Takes finished repetitions back into their cells; the number of those that belong to nothing here.
    Failures are not taken back: they are tried again."""
    by_key = {result.key: result for result in results}
    strangers = 0
    for line in journal:
        if line["kind"] != "repetition":
            continue
        result = by_key.get(line["key"])
        if result is None:
            strangers += 1
        else:
            result.repetitions.append(line["values"])
    return strangers


def as_document(header: Mapping[str, Any], results: Sequence[CellResult]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "header": dict(header),
        "cells": [result.as_json() for result in results],
    }


def read_document(path: Path) -> dict[str, Any]:
    """A saved run: its folder, or the cells.json in it."""
    file = path / CELLS if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        version = document["schema_version"]
        _ = document["header"], document["cells"]
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", "a folder that `--save` wrote") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{file} is no saved benchmark", "a folder that `--save` wrote") from None
    if version != SCHEMA_VERSION:
        raise InputError(f"{file} has schema version {version}; this build reads {SCHEMA_VERSION}")
    return dict(document)
