"""Very many short rows: each there once and in order, private memory flat, the last as cheap as the first.

Memory is RssAnon less the table that finds doubled ids. Cost is CPU time of the whole process a row, of the
last tenth of the rows against the first, start-up left out. Both are reported; rows are judged.
"""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.soak.process import deepinfer, private_bytes, watch
from tests.soak.stream_rows import TINY, LineCounter, table_bytes, write_rows
from tests.support.tiny_models import cached
from tests.torture.jobs import Job, Scale, Scenario, Space
from tests.torture.record import Tally

FAKE, LLAMA = "many rows, model without weights", "many rows, tiny llama"
NUM_FAKE, NUM_LLAMA = 1_000_000, 50_000
_TICKS = os.sysconf("SC_CLK_TCK")
_WARM_SHARE = 0.02  # of the rows: buffers grow, code is read in
_ALLOWED_GROWTH = 0.05
_TABLE_BYTES_A_ROW = 24


@dataclass(frozen=True)
class Seen:
    """A running process at one moment."""

    num_rows: int
    private_bytes: int
    cpu_seconds: float


@dataclass(frozen=True)
class Measured:
    growth: float  # of private memory less the id table: medians of the last tenth over the first
    mib: float  # the same, at most
    table_bytes_a_row: float
    decile_ratio: float  # CPU time a row, last tenth over first
    cpu_seconds: float


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def run(rows: Path, num_rows: int, out: Path, model: str) -> list[Seen]:
    counter, seen = LineCounter(out), []

    def sample(pid: int) -> None:
        memory, cpu = private_bytes(pid), cpu_seconds(pid)
        seen.append(Seen(counter.update(), memory, cpu))

    watch(deepinfer("run", rows, "-o", out, "--model", model, "--max-tokens", "1", "--threads", "1"), sample)
    return seen


def measure(seen: Sequence[Seen], num_rows: int) -> Measured:
    steady = [s for s in seen if s.num_rows >= _WARM_SHARE * num_rows]
    sizes = table_bytes(sorted({s.num_rows for s in steady}))
    net = [s.private_bytes - sizes[s.num_rows] for s in steady]
    tenth, last_rows = num_rows // 10, steady[-1].num_rows
    begin = [size for size, s in zip(net, steady, strict=True) if s.num_rows <= steady[0].num_rows + tenth]
    end = [size for size, s in zip(net, steady, strict=True) if s.num_rows >= last_rows - tenth]
    first = _cpu_at(steady, steady[0].num_rows + tenth) - steady[0].cpu_seconds
    last = steady[-1].cpu_seconds - _cpu_at(steady, last_rows - tenth)
    return Measured(
        growth=statistics.median(end) / statistics.median(begin) - 1,
        mib=max(net) / 2**20,
        table_bytes_a_row=sizes[last_rows] / last_rows,
        decile_ratio=last / max(first, 1e-9),
        cpu_seconds=steady[-1].cpu_seconds,
    )


def _cpu_at(seen: Sequence[Seen], num_rows: int) -> float:
    """CPU time when so many rows were written, between two samples."""
    for before, after in itertools.pairwise(seen):
        if before.num_rows <= num_rows <= after.num_rows and after.num_rows > before.num_rows:
            share = (num_rows - before.num_rows) / (after.num_rows - before.num_rows)
            return before.cpu_seconds + share * (after.cpu_seconds - before.cpu_seconds)
    return seen[-1].cpu_seconds


def check_rows(out: Path, num_rows: int, tally: Tally) -> None:
    """Line by line; a million rows are not held."""
    index = 0
    with out.open("rb") as file:
        for line in file:
            wanted = b'{"id":"row-%d","index":%d,"status":"ok",' % (index, index)
            tally.changed += not (line.startswith(wanted) and line.endswith(b"}\n"))
            index += 1
    tally.rows_checked += num_rows
    tally.lost += max(0, num_rows - index)
    tally.duplicated += max(0, index - num_rows)


def _jobs(scale: Scale) -> list[Job]:
    def job(fault: str, num_rows: int) -> Job:
        rows = max(2000, round(num_rows * min(1.0, scale.factor)))
        return Job(
            "rows", fault, scale.seed, {"rows": rows, "runs": 3 if scale.count is None else 1}, alone=True
        )

    return [job(FAKE, NUM_FAKE), job(LLAMA, NUM_LLAMA)]


def _prepare(shared: Path, _scale: Scale) -> None:
    cached(TINY, shared, "gguf", "Q8_0")


def _run(job: Job, space: Space) -> Tally:
    tally, num_rows = Tally(), job.settings["rows"]
    model = "fake" if job.fault == FAKE else str(cached(TINY, space.shared, "gguf", "Q8_0"))
    rows, out = space.own / "rows.jsonl", space.own / "out.jsonl"
    write_rows(rows, num_rows)
    runs = []
    for _ in range(job.settings["runs"]):
        seen = run(rows, num_rows, out, model)
        check_rows(out, num_rows, tally)
        runs.append(measure(seen, num_rows))
        for path in (out, out.with_name("out.jsonl.run.json")):
            path.unlink()
    growth = statistics.median(r.growth for r in runs)
    table = max(r.table_bytes_a_row for r in runs)
    if growth > _ALLOWED_GROWTH and num_rows >= NUM_LLAMA:
        tally.failures.append(
            f"private memory grew by {100 * growth:.1f} %, {100 * _ALLOWED_GROWTH:.0f} % is allowed"
        )
    if table > _TABLE_BYTES_A_ROW and num_rows >= NUM_LLAMA:
        tally.failures.append(f"the id table takes {table:.1f} bytes a row, {_TABLE_BYTES_A_ROW} are allowed")
    ratios = [r.decile_ratio for r in runs]
    tally.figures = {
        "private memory less the id table, MiB at most": round(max(r.mib for r in runs), 1),
        "its growth, median": f"{100 * growth:+.1f} %",
        "id table, bytes a row": round(table, 1),
        "CPU microseconds a row": round(1e6 * statistics.median(r.cpu_seconds for r in runs) / num_rows),
        "CPU time a row, last tenth over first, median": round(statistics.median(ratios), 3),
    }
    return tally


SCENARIO = Scenario(_prepare, _jobs, _run, "a million rows: count, order, memory, cost (nothing is injected)")
