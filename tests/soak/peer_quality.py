"""How far each engine of `make bench-peers` is from the fp32 reference; adds to the same record.

    python -m tests.soak.peer_quality MODEL.gguf [--only NAME ...] [--precision P ...] [--output FILE.json]

200 positions in each of the 50 fixed texts, chosen by the hash rule of tests/support/fixed_texts.py. The
reference, transformers in fp32 on the file's dequantised weights, and OpenVINO's logits come from OpenVINO's
environment, where both live; numbers are in nats.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tests.support.fixed_texts import FixedText, choose_positions, load_texts
from tests.support.quality import Quality

NUM_POSITIONS = 200
ROOT = Path(__file__).parents[2]


def texts() -> list[FixedText]:
    return [
        dataclasses.replace(
            text, positions=choose_positions(text.name, text.num_header, len(text.tokens), NUM_POSITIONS)
        )
        for text in load_texts()
    ]


def compare(reference: np.ndarray, rows: Iterable[np.ndarray]) -> dict[str, float]:
    """rows: [positions, vocab] of each text."""
    quality = Quality.empty()
    for index, values in enumerate(rows):
        quality.add(reference[index], values)
    return quality.figures()


# ---- inside OpenVINO's environment -------------------------------------------------------------------------


def write_reference(model: Path, out: Path) -> None:
    import torch

    from tests.support import hf_llama

    network = hf_llama.load(model)
    chosen = texts()
    partial = out.with_suffix(".partial")
    shape = (len(chosen), NUM_POSITIONS, network.config.vocab_size)
    logits = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float32, shape=shape)
    with torch.inference_mode():
        for index, text in enumerate(chosen):
            before = torch.tensor(text.positions) - 1  # the output at p - 1 predicts the token at p
            tokens = torch.tensor([text.tokens[: text.positions[-1]]])
            logits[index] = network(tokens).logits[0, before].numpy()
    logits.flush()
    partial.rename(out)


def openvino_rows(folder: Path) -> Iterable[np.ndarray]:
    """By OpenVINO's runtime, with the properties that the pipeline of the speed lines gets."""
    import openvino

    properties = {"PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.Core().compile_model(str(folder / "openvino_model.xml"), "CPU", properties)
    request = compiled.create_infer_request()
    for text in texts():
        count = text.positions[-1]
        request.reset_state()
        values = {
            "input_ids": np.array([text.tokens[:count]], np.int64),
            "attention_mask": np.ones((1, count), np.int64),
            "position_ids": np.arange(count, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        logits = request.infer(values)["logits"]
        yield np.array(logits[0, np.array(text.positions) - 1])


# ---- here --------------------------------------------------------------------------------------------------


def our_rows(model: Path, precision: str) -> Iterable[np.ndarray]:
    from tests.support.native_engine import NativeEngine, Setup

    chosen = texts()
    with NativeEngine(model, Setup(precision=precision, kv_dtype="f16")) as engine:
        spans = [(t.tokens[: t.positions[-1] + 1], t.positions[0], t.positions[-1] + 1) for t in chosen]
        for text, rows in zip(chosen, engine.score(spans), strict=True):
            yield rows[np.array(text.positions) - text.positions[0]]


def llama_cpp_rows(model: Path, library: Path) -> Iterable[np.ndarray]:
    from deepinfer_cli.bench.peers.llama_cpp import LlamaCpp

    engine = LlamaCpp(model, library=library, num_threads=min(4, os.cpu_count() or 1))
    for text in texts():
        scored = engine.score(text.tokens, text.positions)
        yield np.stack([np.frombuffer(values, np.float32) for _, values in scored])


def in_environment(python: Path, *arguments: str | Path) -> str:
    command = [str(python), "-m", "tests.soak.peer_quality", *map(str, arguments)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main() -> None:
    if sys.argv[1] == "--reference":
        return write_reference(Path(sys.argv[2]), Path(sys.argv[3]))
    if sys.argv[1] == "--openvino":
        reference = np.load(sys.argv[3], mmap_mode="r")
        return print(json.dumps(compare(reference, openvino_rows(Path(sys.argv[2])))))

    from deepinfer_cli.bench.conditions import machine
    from deepinfer_cli.bench.peers import __main__ as peers
    from deepinfer_cli.bench.peers import build_openvino, record
    from deepinfer_cli.bench.peers.bounds import read_shapes
    from deepinfer_cli.bench.peers.engines import PEERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--only", action="append", default=[], help="an engine, or the beginning of its name")
    parser.add_argument("--precision", action="append", default=[], help="ours")
    parser.add_argument("--folder", type=Path, default=Path("build/peers"))
    parser.add_argument("--output", type=Path, default=Path("build/peers/peers.json"))
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    python, _ = build_openvino.build(arguments.folder / "openvino", arguments.model)
    path = arguments.folder.absolute() / f"reference-{arguments.model.stem}.npy"
    if not path.exists():
        in_environment(python, "--reference", arguments.model.absolute(), path)
    reference = np.load(path, mmap_mode="r")
    ours = peers.our_engines(arguments.model, arguments.precision, [])
    engines = {
        e.name: e for e in [*ours, *peers.peer_engines(arguments.model, arguments.folder, list(PEERS))]
    }
    for name in record.names_of(arguments.only, list(engines)):
        engine = engines[name]
        if engine.is_ours:
            figures = compare(reference, our_rows(engine.model, name.removeprefix("deepinfer-")))
        elif engine.tools is not None:
            figures = compare(reference, llama_cpp_rows(engine.model, engine.tools / "libllama.so"))
        else:
            answer = in_environment(python, "--openvino", engine.model.absolute(), path)
            figures = json.loads(answer.splitlines()[-1])
        kept = record.load(arguments.output)
        now = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine()}
        kept["quality"] = [q for q in kept["quality"] if q["engine"] != name]
        kept["quality"].append({"engine": name, **figures, **now})
        record.save(kept, arguments.output)
        print(f"{name:<16} KL {figures['mean_kl']:.3e}  top-1 {100 * figures['top1']:.2f} %", flush=True)
    if arguments.table:
        page = record.page(record.load(arguments.output), read_shapes(arguments.model))
        arguments.table.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
