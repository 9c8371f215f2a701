"""Speed of this engine against a peer on the same file and the same work, in pairs.

    python -m deepinfer_cli.bench.compare MODEL [--workload NAME ...] [--pairs N] [--output FILE.json]

Each engine keeps a process with the model loaded; runs alternate A B B A. What is compared is process CPU
seconds at one thread, which neighbours on the machine disturb least. The ratio is the peer's cost / ours:
above 1, this engine is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from deepinfer_cli.bench.conditions import CpuClock, Load, machine
from deepinfer_cli.bench.workloads import DEFAULT_WORKLOADS, WORKLOADS, Cost, Workload
from deepinfer_cli.errors import EngineError
from deepinfer_cli.stats.paired import median_ratio


class Worker:
    """A process that runs one engine."""

    def __init__(self, engine: str, model: Path, num_threads: int, precision: str) -> None:
        command = [sys.executable, "-m", "deepinfer_cli.bench.worker", engine, str(model)]
        command += ["--threads", str(num_threads), "--precision", precision]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._engine = engine
        self.description: str = self._read()["description"]

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # closes its stdin, which ends it

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"{self._engine}: its process ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, workload: Workload) -> Cost:
        assert self._process.stdin is not None
        self._process.stdin.write(workload.name + "\n")
        self._process.stdin.flush()
        return Cost(**self._read())


def compare(ours: Worker, peer: Worker, workload: Workload, num_pairs: int) -> dict[str, Any]:
    """One warm-up each, then pairs in the order A B B A."""
    ours.run(workload)
    peer.run(workload)
    a: list[Cost] = []
    b: list[Cost] = []
    for pair in range(num_pairs):
        for is_ours in (True, False) if pair % 2 == 0 else (False, True):
            (a if is_ours else b).append((ours if is_ours else peer).run(workload))
    ratio = median_ratio([c.cpu_seconds for c in b], [c.cpu_seconds for c in a])
    return {
        "workload": workload.name,
        "ours_tokens_per_cpu_second": round(_rate(workload, a), 1),
        "peer_tokens_per_cpu_second": round(_rate(workload, b), 1),
        "ratio": {key: round(value, 3) for key, value in asdict(ratio).items()},
        "ours_cpu_seconds": [round(c.cpu_seconds, 4) for c in a],
        "peer_cpu_seconds": [round(c.cpu_seconds, 4) for c in b],
    }


def _rate(workload: Workload, costs: list[Cost]) -> float:
    return workload.total_tokens / statistics.median(c.cpu_seconds for c in costs)


def _row(result: dict[str, Any]) -> str:
    ratio = result["ratio"]
    return (
        f"{result['workload']:<12} {result['ours_tokens_per_cpu_second']:>10.1f}"
        f" {result['peer_tokens_per_cpu_second']:>10.1f}   {ratio['median']:.2f}"
        f"  [{ratio['low']:.2f}, {ratio['high']:.2f}]  {ratio['num_pairs']:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--workload", action="append", choices=sorted(WORKLOADS))
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="fast")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    about, before = machine(), CpuClock.read()
    results = []
    with (
        Worker("deepinfer", arguments.model, arguments.threads, arguments.precision) as ours,
        Worker("llama.cpp", arguments.model, arguments.threads, arguments.precision) as peer,
    ):
        print(f"{'workload':<12} {'deepinfer':>10} {'llama.cpp':>10}   ratio  95 % interval  pairs")
        for name in arguments.workload or DEFAULT_WORKLOADS:
            results.append(compare(ours, peer, WORKLOADS[name], arguments.pairs))
            print(_row(results[-1]), flush=True)
        engines = {"deepinfer": ours.description, "llama.cpp": peer.description}
    load = Load.between(before, CpuClock.read())
    print(
        f"tokens per CPU second, {arguments.threads} thread(s); others used {100 * load.others_share:.0f} %"
    )
    record = {
        "what": "tokens per process CPU second; ratio = CPU seconds of llama.cpp / of deepinfer, same work",
        "machine": about,
        "model": arguments.model.name,
        "num_threads": arguments.threads,
        "precision": arguments.precision,
        "engines": engines,
        "load": load.as_dict(),
        "results": results,
    }
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
