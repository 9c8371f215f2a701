"""What is read of machine and process around a repetition: limits, memory, energy, others' share."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deepinfer_cli import machine
from deepinfer_cli.bench.work import Limits

_LIMIT_SECONDS: Final = 0.05  # of each limit; at least one pass is made
_RAPL: Final = Path("/sys/class/powercap")


def measure_limits(arithmetics: Sequence[str], pool: Any) -> Limits:
    """Read rate and peaks with the engine's own threads, while the engine rests."""
    peaks = {kind: machine.peak_gops(kind, _LIMIT_SECONDS, pool) for kind in arithmetics}
    return Limits(machine.memory_read_gbps(_LIMIT_SECONDS, pool), peaks)


def best_of(first: Limits, second: Limits) -> Limits:
    """Of two measurements the larger of each: what disturbs a measurement only ever makes it smaller."""
    peaks = {kind: max(gops, second.peak_gops[kind]) for kind, gops in first.peak_gops.items()}
    return Limits(max(first.dram_gbps, second.dram_gbps), peaks)


def reset_peak_rss() -> bool:
    """Start counting the peak of this process's resident memory anew; false where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_rss_bytes() -> int:
    """Largest resident memory since reset_peak_rss(), or since the start where that is not possible."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """Counters of the processor packages, in microjoules, by folder."""

    counters: dict[str, tuple[int, int]]  # name -> (value, value at which it wraps around)

    @classmethod
    def read(cls, root: Path = _RAPL) -> EnergyReading | None:
        """None where no counter can be read, as in most virtual machines."""
        found = {}
        for folder in sorted(root.glob("intel-rapl:[0-9]*")) if root.is_dir() else []:
            if folder.name.count(":") != 1:  # parts of a package are in its count already
                continue
            try:
                value = int((folder / "energy_uj").read_text())
                found[folder.name] = (value, int((folder / "max_energy_range_uj").read_text()))
            except (OSError, ValueError):
                continue
        return cls(found) if found else None

    def joules_until(self, later: EnergyReading) -> float:
        total = 0
        for name, (value, wrap) in self.counters.items():
            end = later.counters.get(name, (value, wrap))[0]
            total += end - value if end >= value else end + wrap - value
        return total * 1e-6


def load_average() -> float:
    return os.getloadavg()[0]
