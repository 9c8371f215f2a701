"""Runs a loader on one input after another for a time. Whatever a user could put there, the loader either
takes or refuses in one short sentence; anything else is a finding, kept as a file that replays it."""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deepinfer_cli.errors import EXIT_REFUSED, InternalError, describe

SEEDS: Final = Path(__file__).with_name("seeds")
FOUND: Final = Path("build/torture/found")
INPUT_CPU_SECONDS: Final = 30
MEMORY_BYTES: Final = 3 << 30  # beyond what the fuzzing process itself holds
MAX_MESSAGE_CHARS: Final = 1000
_BATCH: Final = 50  # inputs of one child

Attempt = Callable[[bytes], None]  # the loader; raises what it raises
Make = Callable[[random.Random], bytes]  # one input


def verdict(attempt: Attempt, data: bytes) -> str | None:
    """What is wrong with how the input was taken; None when nothing is."""
    started = time.process_time()
    try:
        attempt(data)
    except BaseException as error:
        failure = describe(error)
        said = failure.message + (failure.hint or "")
        if isinstance(failure, InternalError):
            return f"{type(error).__name__}: {error}"[:500]
        if failure.exit_code != EXIT_REFUSED:
            return f"exit code {failure.exit_code}: {failure.message[:300]}"
        if len(said) > MAX_MESSAGE_CHARS or "\n" in said:
            return f"a message of {len(said)} characters or of several lines: {said[:200]!r}"
    seconds = time.process_time() - started
    return f"took {seconds:.0f} s" if seconds > INPUT_CPU_SECONDS / 2 else None


def data_bytes() -> int:
    """What counts against RLIMIT_DATA in this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmData:")) * 1024


def run_batch(attempt: Attempt, inputs: list[bytes]) -> tuple[int, str] | None:
    """The first bad input's number and what is wrong, from a child with bounded memory and time: a loader
    that dies or hangs must not take the fuzzer along."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        limit = data_bytes() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        for number, data in enumerate(inputs):
            soft = int(time.process_time()) + INPUT_CPU_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
            os.write(write_end, f"{number}\n".encode())
            what = verdict(attempt, data)
            if what is not None:
                os.write(write_end, b"! " + what.encode("utf-8", "replace").replace(b"\n", b" "))
                os._exit(1)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        lines = pipe.read().decode().split("\n")
    _, status = os.waitpid(child, 0)
    if status == 0:
        return None
    started = [line for line in lines if line.isdigit()]
    said = next(
        (line[2:] for line in lines if line.startswith("!")), f"the process ended with status {status}"
    )
    return int(started[-1]) if started else 0, said


def fuzz(name: str, attempt: Attempt, make: Make, seconds: float, seed: int) -> tuple[int, list[str]]:
    """(inputs tried, findings). Kept inputs come first; new findings are written to FOUND."""
    kept = sorted((SEEDS / name).glob("*"))
    findings = []
    for path in kept:
        found = run_batch(attempt, [path.read_bytes()])
        if found is not None:
            findings.append(f"{path}: {found[1]}")
    count, number, end = len(kept), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        rng = random.Random(f"{name} {seed} {number}")
        number += 1
        inputs = [make(rng) for _ in range(_BATCH)]
        while inputs:
            found = run_batch(attempt, inputs)
            count += len(inputs) if found is None else found[0] + 1
            if found is None:
                break
            data = inputs[found[0]]
            path = FOUND / name / hashlib.sha256(data).hexdigest()[:16]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            findings.append(f"{path}: {found[1]}")
            inputs = inputs[found[0] + 1 :]
    return count, findings


def main(about: str | None, targets: dict[str, tuple[Attempt, Make]]) -> int:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=targets, action="append")
    parser.add_argument("--replay", type=Path, help="one input, with --only")
    options = parser.parse_args()
    failed = False
    for name in options.only or targets:
        attempt, make = targets[name]
        if options.replay is not None:
            attempt(options.replay.read_bytes())
            continue
        count, findings = fuzz(name, attempt, make, options.seconds, options.seed)
        failed = failed or bool(findings)
        print(f"{name}: {count:,} inputs, {len(findings)} findings", flush=True)
        for finding in findings:
            print(f"  {finding}", file=sys.stderr)
    return 1 if failed else 0
