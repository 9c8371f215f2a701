"""One engine in a process of its own: a workload's name in on stdin, its cost out on stdout, as JSON lines.

python -m deepinfer_cli.bench.worker {deepinfer,llama.cpp} MODEL [--threads N] [--precision P]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from deepinfer_cli.bench.workloads import WORKLOADS, Peer


def _open(arguments: argparse.Namespace) -> Peer:
    model: Path = arguments.model
    if arguments.engine == "llama.cpp":
        from deepinfer_cli.bench.peers.llama_cpp_speed import LlamaCppSpeed

        return LlamaCppSpeed(model, arguments.threads)
    from deepinfer_cli.bench.peers.deepinfer_speed import DeepInferSpeed

    return DeepInferSpeed(model, arguments.threads, arguments.precision)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=("deepinfer", "llama.cpp"))
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="fast")
    arguments = parser.parse_args()
    peer = _open(arguments)
    print(json.dumps({"engine": arguments.engine, "description": peer.describe()}), flush=True)
    for line in sys.stdin:
        cost = peer.run(WORKLOADS[line.strip()])
        print(json.dumps(asdict(cost)), flush=True)


if __name__ == "__main__":
    main()
