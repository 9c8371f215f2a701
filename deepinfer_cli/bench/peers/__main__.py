"""Speed beside peers, whole or in parts; every invocation adds its parts to the same record.

    python -m deepinfer_cli.bench.peers MODEL.gguf [--only NAME ...] [--peer NAME ...] [--precision P ...]

NAME is a workload (prefill-512, decode-1, decode-8, decode-32, decode-64, job-200, job-200-eos, start) or the
beginning of one. Peers are built on first use: llama.cpp from its sources, OpenVINO GenAI in an environment
of its own with int8 weights made from the same file.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from deepinfer_cli.bench.peers import build_llama_cpp, build_openvino, parts, record
from deepinfer_cli.bench.peers.bounds import read_shapes
from deepinfer_cli.bench.peers.engines import PEERS, Engine
from deepinfer_cli.config.layers import FlagUse, resolve
from deepinfer_cli.console import Console, Talk
from deepinfer_cli.engine.batch_run import load_model

SLOWEST = "llama.cpp-q4_1"  # three minutes a job: left out of those unless it is asked for
PROMPTS = Path(__file__).parents[1] / "texts" / "chat-prompts.jsonl"


def our_engines(model: Path, precisions: list[str], settings: list[str]) -> list[Engine]:
    """One engine for each precision that is not there yet; "default" is what the settings say."""
    found: dict[str, Engine] = {}
    for name in precisions or ["default", "fast"]:
        own = settings if name == "default" else [*settings, f"precision={name}"]
        precision = resolve([FlagUse("set", "--set", s) for s in own]).config.engine.precision
        full = "-".join(["deepinfer", precision, *(s for s in settings if not s.startswith("precision="))])
        found.setdefault(full, Engine(full, "deepinfer", model, settings=tuple(own)))
    return list(found.values())


def peer_engines(model: Path, folder: Path, names: list[str]) -> list[Engine]:
    found = []
    for name in names:
        if name.startswith("llama.cpp"):
            library = build_llama_cpp.build(folder / "llama.cpp")
            file = model
            if name.endswith("q4_0"):
                file = build_llama_cpp.quantize(
                    library.parent, model, folder / f"{model.stem}.Q4_0.gguf", "Q4_0"
                )
            found.append(Engine(name, "llama.cpp", file, tools=library.parent))
        else:
            python, converted = build_openvino.build(folder / "openvino", model)
            found.append(Engine(name, "openvino", converted, python))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--only", action="append", default=[], help="a workload, or the beginning of its name"
    )
    parser.add_argument(
        "--peer", action="append", default=[], help=f"one of {', '.join(PEERS)}; or its beginning"
    )
    parser.add_argument(
        "--precision", action="append", default=[], help='ours; default: "default" and "fast"'
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of ours")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, action="append", default=[], help="default: 1, and then 2")
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="where peers are built")
    parser.add_argument("--output", type=Path, default=Path("build/peers/peers.json"))
    parser.add_argument("--table", type=Path, help="also writes the table there")
    arguments = parser.parse_args()
    model: Path = arguments.model
    engines = our_engines(model, arguments.precision, arguments.set)
    engines += peer_engines(model, arguments.folder, record.names_of(arguments.peer, PEERS))
    shapes = read_shapes(model)
    loaded = load_model(resolve([FlagUse("model", "--model", str(model))]).config, Console(Talk(quiet=True)))
    texts = [json.loads(line)["prompt"] for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    prompts = [loaded.tokenizer.encode(text, parse_special=True) for text in texts]
    for num_threads in arguments.threads or [1, 2]:
        for workload in record.names_of(arguments.only, parts.NAMES):
            is_job = workload in parts.JOBS
            left_out = SLOWEST if is_job and not arguments.peer else ""
            part = parts.measure(
                workload,
                [engine for engine in engines if engine.name != left_out],
                num_threads=num_threads,
                num_rounds=arguments.rounds,
                job=parts.job_of(workload, prompts, loaded.eos_token_ids) if is_job else None,
                say=lambda text: print(text, file=sys.stderr, flush=True),
            )
            kept = record.load(arguments.output)
            record.add_part(kept, part)
            kept["summary"] = record.summary(kept, shapes)
            record.save(kept, arguments.output)
    kept = record.load(arguments.output)
    print(record.table(kept, shapes))
    if arguments.table:
        arguments.table.write_text(record.page(kept, shapes), encoding="utf-8")


if __name__ == "__main__":
    main()
