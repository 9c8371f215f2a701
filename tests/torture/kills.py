"""Processes that are killed or interrupted at random moments and resumed, again and again.

A chain starts a run, ends it at a moment drawn from the chain's seed, resumes, ends that, and so on. Moments
are drawn by what the run is doing, so that all of its life is hit: start and load, comparing input and
output, rows, the rewrite after lost pages, the last row and the exit.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.torture.jobs import Job, Scale, Scenario, Space
from tests.torture.record import Tally
from tests.torture.workload import (
    ENDS,
    SHAPES,
    TIMEOUT_S,
    Place,
    Shape,
    Work,
    fake_work,
    plain_rows,
    tiny_work,
)

KILL, INTERRUPT, RETRY, REAL = (
    "SIGKILL, tiny llama",
    "SIGINT, tiny llama",
    "SIGKILL while failed rows are retried",
    "SIGKILL, SmolLM2-135M",
)
_PAGE = 4096
_REAL_ROWS = 120
_PLAIN = SHAPES[:1]


@dataclass
class Chain:
    """One output, ended `num_left` more times before it may finish."""

    place: Place
    rng: random.Random
    number: int  # the signal
    num_left: int
    replay: str
    faults: bool = False  # the fake model loses steps, so that rows fail and are retried

    def run(self) -> Tally:
        tally, num_planned = self.place.tally, self.num_left
        while self.num_left:
            holes = self.place.shape.is_plain and self.rng.random() < 0.2 and self._lose_pages()
            before = self.place.good_rows()
            process = self.place.start("--resume", model=self._model())
            try:
                ended = self._wait(process, holes, num_planned)
                if not ended:
                    process.send_signal(self.number)
                code = process.wait(TIMEOUT_S)
            finally:
                process.kill()
                process.wait()
            if ended or code in ENDS:
                self._finished(code)
                continue
            self.num_left -= 1
            tally.injected += 1
            self.place.check_kept(before, self.replay)
            if not self._is_expected(code):
                self.place.complain(f"{self.replay}: ended with {code}")
                return tally
        if self.faults:  # one retry for each resume: what failed in the last attempt succeeds now
            self.place.run("--resume")
        self.place.check_end(self.replay)
        return tally

    def _model(self) -> str | None:
        return f"fake:0,throw_rate=0.05,seed={self.rng.randrange(1 << 30)}" if self.faults else None

    def _is_expected(self, code: int) -> bool:
        if self.number == signal.SIGKILL:
            return code == -signal.SIGKILL
        said = self.place.said
        if code == -signal.SIGINT:  # the interpreter was still importing: before any function of ours
            ours = [line for line in said.splitlines() if "deepinfer_cli" in line]
            return all(line.endswith("in <module>") for line in ours)
        return code == 130 and "Traceback" not in said

    def _finished(self, code: int) -> None:
        """It was faster than the signal: compare, then begin anew."""
        if code not in ENDS:
            self.place.complain(f"{self.replay}: ended by itself with {code}")
            self.num_left = 0
            return
        self.place.check_end(f"{self.replay} (finished early)")
        for path in self.place.folder.iterdir():
            path.unlink()

    def _lose_pages(self) -> bool:
        """What a power loss may do to pages that were not synced: resuming has to write the file anew."""
        out = self.place.out
        if not out.exists() or out.stat().st_size < 4 * _PAGE:
            return False
        num_pages = out.stat().st_size // _PAGE
        first = self.rng.randrange(num_pages // 2, num_pages)
        with out.open("r+b") as file:
            file.seek(first * _PAGE)
            file.write(bytes(_PAGE * self.rng.randint(1, min(2, num_pages - first))))
        return True

    def _wait(self, process: subprocess.Popen[bytes], holes: bool, num_planned: int) -> bool:
        """Until the moment has come; whether the process ended before it."""
        rng, total = self.rng, self._num_bytes_expected()
        jitter = rng.choice((0.0, rng.uniform(0, 0.02), rng.uniform(0, 0.1)))
        if holes:
            return self._until(process, self._rewrites) or self._pause(process, jitter)
        if self.num_left == 1 and rng.random() < 0.6:
            return self._until(process, lambda: self._size() >= total) or self._pause(process, jitter)
        if rng.random() < 0.3:
            return self._pause(process, rng.uniform(0, 1.2 * self._seconds_to_start()))
        target = self._size() + rng.uniform(0, 1.2 * total / num_planned)
        return self._until(process, lambda: self._size() >= target) or self._pause(process, jitter)

    def _seconds_to_start(self) -> float:
        return min(1.5, self.place.work.seconds(self.place.shape))

    def _num_bytes_expected(self) -> int:
        return (self.place.work.expected_folder(self.place.shape) / self.place.shape.out).stat().st_size

    def _size(self) -> int:
        try:
            return self.place.out.stat().st_size
        except FileNotFoundError:
            return 0

    def _rewrites(self) -> bool:
        return any(path.name.startswith((".merged.", ".again.")) for path in self.place.folder.iterdir())

    @staticmethod
    def _until(process: subprocess.Popen[bytes], condition: object) -> bool:
        assert callable(condition)
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            if process.poll() is not None:
                return True
            if time.monotonic() > deadline:
                raise TimeoutError("the run makes no progress")
            time.sleep(0.002)
        return False

    @staticmethod
    def _pause(process: subprocess.Popen[bytes], seconds: float) -> bool:
        time.sleep(seconds)
        return process.poll() is not None


def _prepare(shared: Path, scale: Scale) -> None:
    tiny_work(shared)
    fake_work(shared)
    if scale.small_model is not None:
        work = Work(shared, "real", scale.small_model)
        work.prepare(plain_rows(_REAL_ROWS, 8), _PLAIN)


def _jobs(scale: Scale) -> list[Job]:
    jobs = []
    for fault, number, kills in ((KILL, 20, 15), (INTERRUPT, 5, 10), (RETRY, 10, 10)):
        for seed in scale.seeds(number):
            shape = SHAPES[seed % len(SHAPES)] if fault != INTERRUPT else SHAPES[0]
            jobs.append(Job("kills", fault, seed, {"kills": kills, "shape": shape}))
    kills = 20 if scale.factor >= 1 else 4
    real = {"kills": kills, "shape": SHAPES[0], "model": scale.small_model}
    return [*jobs, Job("kills", REAL, scale.seed, real)]


def _run(job: Job, space: Space) -> Tally:
    tally = Tally()
    shape: Shape = job.settings["shape"]
    if job.fault == REAL:
        if job.settings["model"] is None:
            return Tally(not_run="the small model is not there")
        work = Work(space.shared, "real", job.settings["model"])
    elif job.fault == RETRY:
        work = fake_work(space.shared)
    else:
        work = tiny_work(space.shared)
    place = Place(work, shape, space.own / "run", tally)
    number = signal.SIGINT if job.fault == INTERRUPT else signal.SIGKILL
    chain = Chain(place, job.rng(), number, job.settings["kills"], job.replay, faults=job.fault == RETRY)
    return chain.run()


SCENARIO = Scenario(_prepare, _jobs, _run, "processes killed and interrupted at random moments, and resumed")
