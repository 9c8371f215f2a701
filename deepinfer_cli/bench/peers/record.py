"""The record of a comparison: parts of several invocations side by side, their ratios, and a table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from deepinfer_cli.bench.peers.bounds import Shapes, amounts
from deepinfer_cli.bench.peers.parts import JOBS, NAMES, START
from deepinfer_cli.stats.paired import median_ratio

QUIET: Final = 0.10  # others' share of the machine from which on a wall time of all cores says nothing
WHAT: Final = (
    "Engines in turns on the same work. Ratio: the peer's cost per token / ours, pair by pair; above 1, ours"
    " is faster. Cost: process CPU seconds at one thread, wall seconds at more and for the start."
)

Part = dict[str, Any]


def load(path: Path) -> dict[str, Any]:
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    return {"what": WHAT, "parts": [], "quality": []}


def add_part(record: dict[str, Any], part: Part) -> None:
    """Takes the place of an earlier part of the same workload, threads and engines."""
    record["what"] = WHAT
    record["parts"] = [p for p in record["parts"] if _key(p) != _key(part)] + [part]


def _key(part: Part) -> tuple[Any, ...]:
    return part["workload"], part["num_threads"], *sorted(part["engines"])


def save(record: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Row:
    """One of ours beside one peer."""

    workload: str
    num_threads: int
    ours: str
    peer: str
    ours_rate: float  # tokens per CPU second (wall second where walls are compared); seconds of a start
    peer_rate: float
    ratio: float
    low: float
    high: float
    num_pairs: int
    rss_ratio: float  # ours / theirs
    others_share: float  # median over the runs
    is_measurable: bool
    shares: Mapping[str, float]  # of the machine's limits, ours
    time: str


def is_by_wall(part: Part) -> bool:
    return bool(part["workload"] == START or part["num_threads"] > 1)


def _costs(engine: Mapping[str, Any], by_wall: bool) -> list[float]:
    """Seconds per token, run by run."""
    what = "wall_seconds" if by_wall else "cpu_seconds"
    return [run[what] / run["num_tokens"] for run in engine["runs"]]


def rows_of(part: Part, shapes: Shapes | None) -> Iterator[Row]:
    by_wall = is_by_wall(part)
    for ours, mine in part["engines"].items():
        for peer, theirs in part["engines"].items():
            if not mine["is_ours"] or theirs["is_ours"]:
                continue
            a, b = _costs(mine, by_wall), _costs(theirs, by_wall)
            ratio = median_ratio(b, a)
            others = statistics.median(run["others_share"] for run in mine["runs"] + theirs["runs"])
            rates = [statistics.median(costs) for costs in (a, b)]
            if part["workload"] != START:
                rates = [1 / rate for rate in rates]
            yield Row(
                workload=part["workload"],
                num_threads=part["num_threads"],
                ours=ours,
                peer=peer,
                ours_rate=rates[0],
                peer_rate=rates[1],
                ratio=ratio.median,
                low=ratio.low,
                high=ratio.high,
                num_pairs=ratio.num_pairs,
                rss_ratio=mine["peak_rss_bytes"] / max(1, theirs["peak_rss_bytes"]),
                others_share=others,
                is_measurable=not by_wall or others < QUIET,
                shares={} if shapes is None else _shares(part, mine, shapes),
                time=part["time"],
            )


def _shares(part: Part, engine: Mapping[str, Any], shapes: Shapes) -> dict[str, float]:
    """Shares of the limits measured in the same part: operations at each peak, bytes at the read rate."""
    if part["workload"] in (*JOBS, START):
        return {}
    what = "wall_seconds" if is_by_wall(part) else "cpu_seconds"
    seconds = statistics.median(run[what] for run in engine["runs"])
    ops, num_bytes = amounts(part["workload"], shapes)
    limits = part["limits"]
    found = {a: ops / seconds * 1e-9 / limits[f"{a}_gops"] for a in ("int8", "bf16") if limits[f"{a}_gops"]}
    return {**found, "dram": num_bytes / seconds * 1e-9 / limits["dram_gbps"]}


def latest_rows(record: Mapping[str, Any], shapes: Shapes | None) -> list[Row]:
    """Of every workload, threads and pair of engines the last one measured."""
    found: dict[tuple[Any, ...], Row] = {}
    for part in sorted(record["parts"], key=lambda p: str(p["time"])):
        for row in rows_of(part, shapes):
            found[(row.num_threads, NAMES.index(row.workload), row.ours, row.peer)] = row
    return [found[key] for key in sorted(found)]


def table(record: Mapping[str, Any], shapes: Shapes | None) -> str:
    """Markdown."""
    quality = {q["engine"]: q for q in record["quality"]}
    lines = [
        "| workload | thr | ours | peer | ours tok/s | peer tok/s | ratio [95 %] | pairs | RSS ratio"
        " | of int8 / bf16 / DRAM limit | KL ours / peer (top-1 %) | others | when |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in latest_rows(record, shapes):
        ratio = f"**{r.ratio:.2f}** [{r.low:.2f}, {r.high:.2f}]"
        if not r.is_measurable:
            ratio = f"not measurable ({ratio})"
        unit = " s" if r.workload == START else ""
        digits = 2 if r.workload == START else 0
        cells = [
            r.workload,
            str(r.num_threads),
            r.ours.removeprefix("deepinfer-"),
            r.peer,
            f"{r.ours_rate:.{digits}f}{unit}",
            f"{r.peer_rate:.{digits}f}{unit}",
            ratio,
            str(r.num_pairs),
            # Of step workloads it says more about what stays in a prefix cache from run to run.
            f"{r.rss_ratio:.2f}" if r.workload in (*JOBS, START) else "-",
            " / ".join(f"{100 * share:.0f} %" for share in r.shares.values()) or "-",
            f"{_quality(quality.get(r.ours))} / {_quality(quality.get(r.peer))}",
            f"{100 * r.others_share:.0f} %",
            r.time[5:16].replace("T", " "),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(record: Mapping[str, Any], shapes: Shapes | None) -> str:
    """The table with what its reader must know."""
    about = record["parts"][-1]["machine"] if record["parts"] else {}
    return f"""# Beside other engines

{record["what"]} Rates are tokens per second of that cost: computed ones of `prefill` and `decode`, made
ones of jobs. `RSS ratio`: our peak memory over theirs.

`others`: what other processes took of the machine meanwhile; from {100 * QUIET:.0f} % on walls are not
measurable. Limits are those measured in the same part, for ours; a model that fits into the last-level cache
can be read faster than memory. KL is the mean distance to fp32 in nats, with the top-1 agreement.

Machine: {about.get("cpu")}, {about.get("num_cpus")} CPUs. How it is measured: [README](README.md). Written by
`make peer-speed` from `peers.json`.

{table(record, shapes)}
"""


def _quality(figures: Mapping[str, Any] | None) -> str:
    return "-" if figures is None else f"{figures['mean_kl']:.2e} ({100 * figures['top1']:.2f})"


def summary(record: Mapping[str, Any], shapes: Shapes | None) -> list[dict[str, Any]]:
    """The rows as plain values, for the record."""
    return [
        {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(row).items()}
        for row in latest_rows(record, shapes)
    ]


def names_of(chosen: Sequence[str], known: Sequence[str]) -> list[str]:
    """`known` in its order, cut down to those that one of `chosen` names or is the beginning of."""
    return [name for name in known if not chosen or any(name.startswith(c) for c in chosen)]
