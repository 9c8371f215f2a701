"""Process start to the end of a run of one row: a 20-token prompt, 16 tokens, the model in the page cache.

    python -m tests.soak.start_up MODEL [--repeats 10] [--output FILE.json]

The whole process counts, so the first finished row is there earlier than this.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from deepinfer_cli.bench.conditions import CpuClock, Load, machine
from tests.soak.process import deepinfer

PROMPT = "The harbour master wrote down the height of every tide for forty years, and in his last year he"
NUM_TOKENS = 16


def one_run(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    # An installed command has its bytecode beside it, whatever this shell says about writing more.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"ended with {process.returncode}: {' '.join(command)}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, out = Path(folder) / "rows.jsonl", Path(folder) / "out.jsonl"
        rows.write_text(json.dumps({"id": "one", "prompt": PROMPT}) + "\n", encoding="utf-8")
        command = deepinfer("run", rows, "-o", out, "--overwrite", "--model", arguments.model)
        command += ["--temperature", "0", "--max-tokens", str(NUM_TOKENS), "--ignore-eos"]
        one_run(command)  # fills the page cache and leaves bytecode
        usage = json.loads(out.read_text(encoding="utf-8"))["usage"]
        about, before = machine(), CpuClock.read()
        runs = [one_run(command) for _ in range(arguments.repeats)]
        load = Load.between(before, CpuClock.read())
    wall, cpu = ([run[part] for run in runs] for part in (0, 1))
    for name, values in (("wall", wall), ("CPU", cpu)):
        print(f"{name:<4} median {statistics.median(values):.2f} s, least {min(values):.2f} s")
    print(
        f"{usage['prompt_tokens']} prompt tokens; others used {100 * load.others_share:.0f} % of the machine"
    )
    record = {
        "what": "seconds of one whole process: start, load, one row of 16 tokens, exit",
        "machine": about,
        "model": arguments.model.name,
        "num_prompt_tokens": usage["prompt_tokens"],
        "wall_seconds": [round(value, 3) for value in wall],
        "cpu_seconds": [round(value, 3) for value in cpu],
        "load": load.as_dict(),
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
