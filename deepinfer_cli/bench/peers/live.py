"""One engine in a process of its own: work in on stdin, costs out on stdout, as JSON lines.

python -m deepinfer_cli.bench.peers.live KIND MODEL THREADS [jobs|steps [SETTING=VALUE ...]]

A line of work is a job (bench/peers/job.py), or for "steps" the name of a workload (bench/workloads.py). An
answer holds what it cost, the CPU seconds of this process since the last answer, and its peak memory.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deepinfer_cli import streams
from deepinfer_cli.bench.peers.job import Job, JobRunner
from deepinfer_cli.bench.workloads import WORKLOADS, Peer
from deepinfer_cli.errors import describe


def open_jobs(kind: str, model: str, num_threads: int, settings: Sequence[str]) -> JobRunner:
    if kind == "llama.cpp":
        from deepinfer_cli.bench.peers.llama_cpp_batch import LlamaCppBatch

        return LlamaCppBatch(Path(model), num_threads)
    if kind == "openvino":
        from deepinfer_cli.bench.peers.openvino import OpenVinoBatch

        return OpenVinoBatch(Path(model), num_threads)
    if kind == "deepinfer":
        from deepinfer_cli.bench.peers.deepinfer import DeepInferBatch

        return DeepInferBatch(Path(model), num_threads, settings)
    from deepinfer_cli.bench.peers.endpoint import Endpoint

    return Endpoint(kind, model or None)


def open_steps(kind: str, model: str, num_threads: int, settings: Sequence[str]) -> Peer:
    if kind == "llama.cpp":
        from deepinfer_cli.bench.peers.llama_cpp_speed import LlamaCppSpeed

        return LlamaCppSpeed(Path(model), num_threads)
    if kind == "openvino":
        from deepinfer_cli.bench.peers.openvino import OpenVinoSpeed

        return OpenVinoSpeed(Path(model), num_threads)
    from deepinfer_cli.bench.peers.deepinfer import DeepInferSpeed

    return DeepInferSpeed(Path(model), num_threads, settings)


def peak_rss_bytes() -> int:
    """Largest resident memory of this process so far; 0 = not known."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def main() -> int:
    kind, model, threads, *more = sys.argv[1:]
    mode, settings = (more[0], more[1:]) if more else ("jobs", [])
    out = streams.take_stdout()  # a library that writes to stdout must not spoil the answers

    def answer(value: dict[str, Any]) -> None:
        data = memoryview((json.dumps(value) + "\n").encode())
        while data:
            data = data[out.write(data) :]

    def answer_of(make: Callable[[], dict[str, Any]]) -> bool:
        """Answers with what `make` returns, or with why it did not; whether it did."""
        busy = time.process_time()
        try:
            found = make()
            answer(found | {"busy_seconds": time.process_time() - busy, "peak_rss_bytes": peak_rss_bytes()})
        except Exception as error:
            failure = describe(error)
            answer({"error": failure.message, "hint": failure.hint})
            return False
        return True

    run: list[Callable[[Any], Any]] = []

    def greet() -> dict[str, Any]:
        if mode == "steps":
            peer = open_steps(kind, model, int(threads), settings)
            run.append(lambda name: peer.run(WORKLOADS[name]))
            return {"description": peer.describe()}
        runner = open_jobs(kind, model, int(threads), settings)
        run.append(lambda work: runner.run(Job(**work)))
        return {"description": runner.describe()}

    if not answer_of(greet):
        return 1
    for line in sys.stdin:  # work that fails is no reason to give up the next
        answer_of(lambda line=line: {"cost": asdict(run[0](json.loads(line)))})  # type: ignore[misc]
    return 0


if __name__ == "__main__":
    sys.exit(main())
