"""A scenario is a list of independent jobs. Each runs in a process and a folder of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.torture.record import Tally


@dataclass(frozen=True)
class Scale:
    """How much is done. Numbers of jobs are for `make torture`; `factor` makes all of it less or more."""

    factor: float = 1.0
    seed: int = 1
    count: int | None = None  # of jobs of each fault, whatever the factor says
    seconds: float = 60.0  # of each fuzzer, at factor 1
    small_model: str | None = None
    without_model: bool = False  # accept that the small model is not there

    def times(self, number: int) -> int:
        return max(1, round(number * self.factor)) if self.count is None else self.count

    def seeds(self, number: int) -> range:
        """Seeds of so many jobs."""
        return range(self.seed, self.seed + self.times(number))


@dataclass(frozen=True)
class Job:
    scenario: str
    fault: str  # its line in the table
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False  # measures something, so nothing else of ours runs beside it

    @property
    def name(self) -> str:
        return f"{self.scenario}-{self.fault}-{self.seed}".replace(" ", "-").replace("/", "-")

    @property
    def replay(self) -> str:
        return f"python -m tests.torture --scenario {self.scenario} --seed {self.seed} --count 1"

    def rng(self) -> random.Random:
        return random.Random(f"{self.fault} {self.seed}")


@dataclass(frozen=True)
class Space:
    """Where a job works."""

    shared: Path  # made before the jobs start, then only read
    own: Path


@dataclass(frozen=True)
class Scenario:
    prepare: Callable[[Path, Scale], None]  # (shared folder, scale)
    jobs: Callable[[Scale], list[Job]]
    run: Callable[[Job, Space], Tally]
    about: str


def nothing_to_prepare(_shared: Path, _scale: Scale) -> None:
    pass
