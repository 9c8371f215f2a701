"""Under what conditions a figure was taken: the machine, and how busy others kept it meanwhile."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CpuClock:
    """CPU seconds since boot, from /proc/stat, and of this process with its finished children."""

    busy: float
    own: float
    wall: float

    @classmethod
    def read(cls) -> CpuClock:
        fields = [int(v) for v in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        ticks = os.sysconf("SC_CLK_TCK")
        times = os.times()
        own = times.user + times.system + times.children_user + times.children_system
        return cls((sum(fields) - fields[3] - fields[4]) / ticks, own, times.elapsed)


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Hardware")):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _commit() -> str:
    folder = Path(__file__).parent
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or "unknown"


def machine() -> dict[str, Any]:
    """What the reader of a record needs to judge it."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
        "cpu": cpu_model(),
        "num_cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class Load:
    """How the machine was shared between two readings."""

    wall_seconds: float
    own_cpu_seconds: float
    others_share: float  # of all CPUs, 0 .. 1

    @classmethod
    def between(cls, before: CpuClock, after: CpuClock) -> Load:
        wall = after.wall - before.wall
        own = after.own - before.own
        others = max(0.0, after.busy - before.busy - own)
        return cls(round(wall, 2), round(own, 2), round(others / max(wall, 1e-9) / (os.cpu_count() or 1), 3))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
