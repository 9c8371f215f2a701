"""Two live pairs on the small model: a build beside itself, and beside itself with drawn-out steps.

    python -m tests.soak.live_pairs MODEL [--pairs N] [--busy-wait 0.1] [--output FILE.json]

Both engines stand in one process and take turns (A B B A), so that what other processes do to the machine
meets both. What is compared is CPU seconds of the same work. The first pair must not be called different; the
second must be, by about the busy wait.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deepinfer_cli.bench.asks import SyntheticAsks
from deepinfer_cli.bench.conditions import CpuClock, Load, machine
from deepinfer_cli.bench.measure import Measurement
from deepinfer_cli.bench.spec import Cell, Slo, Sweep
from deepinfer_cli.config.layers import FlagUse, resolve
from deepinfer_cli.console import Console, Talk
from deepinfer_cli.engine.batch_run import load_model
from deepinfer_cli.engine.native import NativeEngine
from deepinfer_cli.stats.paired import median_ratio

SAME_WITHIN = 0.03  # two engines of one build in one process differ by a little: their memory lies elsewhere
LOAD = {"concurrency": 8, "num_prompts": 8, "input_len": 64, "output_len": 24}


def measure(engine: NativeEngine, cell: Cell, asks: SyntheticAsks, number: int) -> float:
    measurement = Measurement(engine, cell, None, Slo(), None, is_stopped=lambda: False)
    values = measurement.run(asks.asks(cell, number), asks.warmup(cell, number))
    if values["lengths"]["prefix_hit_rate"] > 0:
        raise SystemExit("a prompt came back: one engine would have had less to do than the other")
    seconds: float = values["throughput"]["cpu_seconds"]
    return seconds


def pairs(
    engines: tuple[NativeEngine, NativeEngine], cell: Cell, asks: SyntheticAsks, numbers: range
) -> dict[str, Any]:
    """CPU seconds of both, in the order A B B A, and their ratio."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in numbers:
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            seconds[side].append(measure(engines[side], cell, asks, number))
    ratio = median_ratio(seconds[1], seconds[0])
    return {
        "ratio": {k: round(v, 4) for k, v in asdict(ratio).items()},
        "is_different": ratio.low > 1 + SAME_WITHIN or ratio.high < 1 - SAME_WITHIN,
        "first_cpu_seconds": [round(s, 4) for s in seconds[0]],
        "second_cpu_seconds": [round(s, 4) for s in seconds[1]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--busy-wait", type=float, default=0.1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    about, before = machine(), CpuClock.read()
    uses = [FlagUse("model", "--model", arguments.model), FlagUse("threads", "--threads", "1")]
    config = resolve(uses).config
    model = load_model(config, Console(Talk(quiet=True)))
    (cell,) = Sweep({}, LOAD).cells(config.engine)
    asks = SyntheticAsks(model.tokenizer)

    def engine(busy_wait: float) -> NativeEngine:
        return NativeEngine(model, config.engine, max_context=1024, max_tokens_cap=1024, busy_wait=busy_wait)

    plain = engine(0.0)
    found = {}
    for i, (name, wait) in enumerate({"same build": 0.0, "steps drawn out": arguments.busy_wait}.items()):
        other = engine(wait)
        numbers = range(i * arguments.pairs, (i + 1) * arguments.pairs)  # prompts that are new to both
        found[name] = {"busy_wait": wait, **pairs((plain, other), cell, asks, numbers)}
        other.close()
        ratio = found[name]["ratio"]
        verdict = "different" if found[name]["is_different"] else "not different"
        print(
            f"{name}: {ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}], {verdict}", flush=True
        )
    plain.close()
    load = Load.between(before, CpuClock.read())
    record = {
        "what": "CPU seconds of the second engine / of the first, same work, in turns; 95 % interval",
        "machine": about,
        "model": Path(arguments.model).name,
        "load_of_the_cell": LOAD,
        "num_threads": 1,
        "load": load.as_dict(),
        "pairs": found,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
