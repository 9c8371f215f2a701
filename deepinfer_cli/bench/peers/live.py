"""One peer in a process of its own: jobs in on stdin, costs out on stdout, as JSON lines.

python -m deepinfer_cli.bench.peers.live KIND MODEL THREADS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deepinfer_cli import streams
from deepinfer_cli.bench.peers.job import Job, JobRunner
from deepinfer_cli.errors import describe


def open_peer(kind: str, model: str, num_threads: int) -> JobRunner:
    if kind == "llama.cpp":
        from deepinfer_cli.bench.peers.llama_cpp_batch import LlamaCppBatch

        return LlamaCppBatch(Path(model), num_threads)
    if kind == "openvino":
        from deepinfer_cli.bench.peers.openvino_batch import OpenVinoBatch

        return OpenVinoBatch(Path(model), num_threads)
    from deepinfer_cli.bench.peers.endpoint import Endpoint

    return Endpoint(kind, model or None)


def main() -> int:
    kind, model, threads = sys.argv[1:4]
    out = streams.take_stdout()  # a library that writes to stdout must not spoil the answers

    def answer(value: dict[str, Any]) -> None:
        data = memoryview((json.dumps(value) + "\n").encode())
        while data:
            data = data[out.write(data) :]

    def answer_of(make: Callable[[], dict[str, Any]]) -> bool:
        """Answers with what `make` returns, or with why it did not; whether it did."""
        try:
            answer(make())
        except Exception as error:
            failure = describe(error)
            answer({"error": failure.message, "hint": failure.hint})
            return False
        return True

    peers: list[JobRunner] = []

    def greet() -> dict[str, Any]:
        peers.append(open_peer(kind, model, int(threads)))
        return {"description": peers[0].describe()}

    if not answer_of(greet):
        return 1
    for line in sys.stdin:  # a job that fails is no reason to give up the next one
        job = Job(**json.loads(line))
        answer_of(lambda job=job: asdict(peers[0].run(job)))  # type: ignore[misc]
    return 0


if __name__ == "__main__":
    sys.exit(main())
