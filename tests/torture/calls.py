"""Calls that fail anywhere: write, fsync, rename, ftruncate and open, with an error or half done."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.torture import shim
from tests.torture.jobs import Job, Scale, Scenario, Space
from tests.torture.record import Tally
from tests.torture.workload import ENDS, SHAPES, Place, fake_work

NUM_ROWS = 600
CALLS = ("write", "fsync", "rename", "ftruncate", "open")
_ERRORS = ("ENOSPC", "EIO", "EDQUOT")
_FATAL = 1
# How many calls of a kind a run makes at most; a number beyond what happens hits nothing.
_MOST = {"write": 14, "fsync": 12, "rename": 4, "ftruncate": 2, "open": 7}


@dataclass
class Failing:
    """Attempts on one output, each with one call failing, then one that is left alone."""

    place: Place
    rng: random.Random
    library: Path
    call: str
    replay: str

    def run(self, num_rounds: int) -> Tally:
        for number in range(num_rounds):
            what = f"{self.replay} round {number}"
            for _ in range(self.rng.randint(1, 3)):
                self._leave_something_to_mend()
                self._attempt(what)
            if self.place.run("--resume") not in ENDS:  # rows that failed in the last attempt
                self.place.complain(f"{what}: --resume failed")
            self.place.check_end(what)
            for path in self.place.folder.iterdir():
                path.unlink()
        return self.place.tally

    def _leave_something_to_mend(self) -> None:
        """A torn last row and a lost page, so that ftruncate and rename are called at all."""
        out = self.place.out
        if self.call not in ("ftruncate", "rename") or not out.exists():
            return
        can_lose_pages = self.place.shape.is_plain
        with out.open("r+b") as file:
            size = file.seek(0, 2)
            file.truncate(self.rng.randrange(size // 2, size + 1))
            if can_lose_pages and size > 20_000 and self.rng.random() < 0.5:
                file.seek(self.rng.randrange(size // 3))
                file.write(bytes(4096))

    def _attempt(self, what: str) -> None:
        rng, place = self.rng, self.place
        kinds = (*_ERRORS, "short", "torn") if self.call == "write" else _ERRORS
        fault = f"{self.call}:{rng.randrange(_MOST[self.call])}:{rng.choice(kinds)}{rng.choice(('', ':on'))}"
        loses_steps = rng.random() < 0.5
        model = f"fake:0,throw_rate=0.1,seed={rng.randrange(1 << 30)}" if loses_steps else None
        env = shim.environment(self.library, place.folder, fault=fault)
        before = place.good_rows()
        code = place.run("--resume", "--fsync", rng.choice(("0", "5")), env=env, model=model)
        place.tally.injected += 1
        what = f"{what}, {fault}"
        place.check_kept(before, what)
        said = place.said
        if code not in (*ENDS, _FATAL) or "Traceback" in said or "unexpected" in said:
            place.complain(f"{what}: ended with {code}")
        elif code == _FATAL and not any(str(path) in said for path in (place.folder, place.out)):
            place.complain(f"{what}: the message names no file")
        elif code in ENDS and not loses_steps:
            found = place.shape.rows(place.folder)
            if found != place.expected and b'"retryable":true' not in found:
                place.complain(f"{what}: ended with {code}, but rows are not there")


def _prepare(shared: Path, _scale: Scale) -> None:
    shim.build(shared)
    fake_work(shared, NUM_ROWS, SHAPES)


def _jobs(scale: Scale) -> list[Job]:
    return [
        Job("calls", f"{call} fails", seed, {"call": call, "rounds": 5})
        for call in CALLS
        for seed in scale.seeds(5)
    ]


def _run(job: Job, space: Space) -> Tally:
    shape = SHAPES[job.seed % len(SHAPES)]
    place = Place(fake_work(space.shared, NUM_ROWS, SHAPES), shape, space.own / "run", Tally())
    failing = Failing(place, job.rng(), shim.build(space.shared), job.settings["call"], job.replay)
    return failing.run(job.settings["rounds"])


SCENARIO = Scenario(_prepare, _jobs, _run, "write, fsync, rename, ftruncate and open made to fail")
