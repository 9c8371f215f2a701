"""Watches a child process through /proc: private memory, CPU time of each of its threads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def private_bytes(pid: int) -> int:
    """RssAnon: resident memory that is backed by no file."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def thread_cpu_seconds(pid: int) -> dict[int, tuple[str, float]]:
    """Thread id -> (name, CPU seconds so far)."""
    result = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(") ")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended in between
        fields = rest.split()
        result[int(task.name)] = (name, (int(fields[11]) + int(fields[12])) / _TICKS)
    return result


@dataclass
class Watched:
    """What was seen of a finished child."""

    exit_code: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    threads: dict[int, tuple[str, float]] = field(default_factory=dict)  # last seen values


def deepinfer(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "deepinfer_cli", *map(str, arguments)]


def watch(
    command: Sequence[str], sample: Callable[[int], None] | None = None, interval_s: float = 0.1
) -> Watched:
    """Runs `command` with its talk hidden; `sample(pid)` is called every `interval_s` seconds."""
    seen = Watched()
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while process.poll() is None:
        try:
            seen.threads |= thread_cpu_seconds(process.pid)
            if sample:
                sample(process.pid)
        except (FileNotFoundError, ProcessLookupError):
            pass  # it ended in between
        time.sleep(interval_s)
    seen.wall_seconds = time.perf_counter() - started
    seen.exit_code = process.returncode
    if seen.exit_code != 0:
        assert process.stderr is not None
        sys.exit(f"{' '.join(command)}\nended with {seen.exit_code}:\n{process.stderr.read().decode()}")
    return seen
