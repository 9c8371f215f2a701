"""Injects faults, resumes, and compares every row with an uninterrupted run: what `make torture` does.

    python -m tests.torture [--scenario NAME] [--scale 0.1] [--seed 1] [--count N] [--output FILE.json]

A failing job names the seed that replays it. The exit code is 1 when a row was lost, doubled or changed, when
anything else failed, or when a part could not run and was not left out by name.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path

from deepinfer_cli.bench.conditions import CpuClock, machine
from deepinfer_cli.errors import DeepInferError
from tests.support.small_model import small_model
from tests.torture.jobs import Scale
from tests.torture.record import record, remarks, table
from tests.torture.runner import SCENARIOS, torture


def _small_model() -> str | None:
    """From the model cache, fetched there when missing; None without a network."""
    try:
        return str(small_model())
    except DeepInferError as error:
        print(f"no small model: {error}", file=sys.stderr)
        return None


def _command(arguments: list[str]) -> str:
    """For the record: what was done, without paths of this machine."""
    shown, rest = ["python -m tests.torture"], iter(arguments)
    for argument in rest:
        if argument in ("--small-model", "--output"):
            next(rest)
        elif not argument.startswith(("--small-model=", "--output=")):
            shown.append(argument)
    return " ".join(shown)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    about = "\n".join(f"{name}: {scenario.about}" for name, scenario in SCENARIOS.items())
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help=about)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the number of jobs (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="of the first job of each fault")
    parser.add_argument("--count", type=int, help="jobs of each fault")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each fuzzer at --scale 1")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--small-model", help="the small model's GGUF file (default: from the model cache)")
    parser.add_argument("--without-model", action="store_true", help="leave the small model out")
    parser.add_argument("--output", type=Path, help="the JSON document")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would pass SIG_IGN on
    scale = Scale(
        factor=options.scale,
        seed=options.seed,
        count=options.count,
        seconds=options.seconds,
        small_model=options.small_model or (None if options.without_model else _small_model()),
        without_model=options.without_model,
    )
    before = CpuClock.read()
    started = time.monotonic()
    tallies = torture(options.scenario or list(SCENARIOS), scale, options.processes)
    after = CpuClock.read()
    document = record(
        tallies,
        {
            "machine": machine(),
            "command": _command(sys.argv[1:]),
            "seed": options.seed,
            "scale": options.scale,
            "wall_seconds": round(time.monotonic() - started, 1),
            "cpu_seconds": round(after.own - before.own, 1),
        },
    )
    print(table(document))
    for remark in remarks(document):
        print(remark)
    print(f"{document['wall_seconds'] / 60:.1f} minutes, {document['cpu_seconds'] / 60:.1f} CPU minutes")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    skipped = [tally for tally in tallies.values() if tally.not_run]
    failed = [tally for tally in tallies.values() if not tally.is_clean]
    return 1 if failed or (skipped and not options.without_model) else 0


if __name__ == "__main__":
    sys.exit(main())
