"""A small file system that is filled to the brim, so that runs end with no space left, at random points."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.torture.jobs import Job, Scale, Scenario, Space
from tests.torture.record import Tally
from tests.torture.workload import ENDS, SHAPES, Place, fake_work

FULL = "file system full"
NUM_ROWS = 2000
_MIB = 8
_FATAL = 1


def _done(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[str]:
    """Mounts it at `folder`; which kind of it this machine allowed, "" when none."""
    folder.mkdir(parents=True)
    image = folder.with_name(f"{folder.name}.image")
    with image.open("wb") as file:
        file.truncate(_MIB << 20)
    kind = ""
    if _done("mkfs.ext4", "-q", "-F", "-m", "0", str(image)) and _done(
        "mount", "-o", "loop", str(image), str(folder)
    ):
        kind = "ext4, loop-mounted"
    elif _done("mount", "-t", "tmpfs", "-o", f"size={_MIB}m", "tmpfs", str(folder)):
        kind = "tmpfs of limited size"
    try:
        yield kind
    finally:
        if kind and not _done("umount", str(folder)):
            _done("umount", "-l", str(folder))


@dataclass
class Filling:
    """Attempts with a random number of free bytes each, then one with room."""

    place: Place
    rng: random.Random
    replay: str

    def run(self, num_fills: int) -> Tally:
        ballast = self.place.folder.parent / "ballast"
        expected, tally = len(self.place.expected), self.place.tally
        for _ in range(20 * num_fills):  # not every number of free bytes is too small
            if tally.injected >= num_fills:
                break
            for _ in range(self.rng.randint(1, 4)):
                done = sum(path.stat().st_size for path in self.place.folder.glob("*"))
                self._fill(ballast, self.rng.randrange(max(expected - done, expected // 4)))
                self._attempt()
            ballast.unlink()
            if self.place.run("--resume") not in ENDS:  # rows that failed in the last attempt
                self.place.complain(f"{self.replay}: --resume with room failed")
            self.place.check_end(self.replay)
            for path in self.place.folder.iterdir():
                path.unlink()
        return tally

    def _fill(self, ballast: Path, num_free: int) -> None:
        """Leaves about `num_free` bytes."""
        ballast.unlink(missing_ok=True)
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                info = os.statvfs(ballast.parent)
                num_bytes = info.f_bfree * info.f_frsize - num_free
                if num_bytes <= 0:
                    break
                file.write(bytes(min(num_bytes, 1 << 16)))
            os.fsync(file.fileno())

    def _attempt(self) -> None:
        place, rng = self.place, self.rng
        before = place.good_rows()
        faults = f"fake:0,throw_rate=0.05,seed={rng.randrange(1 << 30)}" if rng.random() < 0.4 else None
        code = place.run("--resume", "--fsync", rng.choice(("0", "5")), model=faults)
        said = place.said
        place.tally.injected += code == _FATAL
        place.check_kept(before, self.replay)
        if code not in (*ENDS, _FATAL) or "Traceback" in said or "unexpected" in said:
            place.complain(f"{self.replay}: on a full disk it ended with {code}")
        if code == _FATAL and (str(place.folder) not in said or "No space left" not in said):
            place.complain(f"{self.replay}: the message names neither the file nor the reason")
        if code == _FATAL and place.shape.is_plain and place.out.exists():
            data = place.out.read_bytes()
            if data and not data.endswith(b"\n"):
                place.complain(f"{self.replay}: the last row is torn")


def _prepare(shared: Path, _scale: Scale) -> None:
    fake_work(shared, NUM_ROWS, SHAPES)


def _jobs(scale: Scale) -> list[Job]:
    return [Job("disk", FULL, seed, {"fills": 6}) for seed in scale.seeds(4)]


def run_filling(job: Job, space: Space) -> Tally:
    with tempfile.TemporaryDirectory() as root, small_disk(Path(root) / "disk") as kind:
        if not kind:
            return Tally(not_run="no small file system can be mounted here (needs root or user namespaces)")
        tally = Tally(figures={"file system": kind})
        shape = SHAPES[job.seed % len(SHAPES)]
        place = Place(
            fake_work(space.shared, NUM_ROWS, SHAPES),
            shape,
            Path(root) / "disk/run",
            tally,
            said_in=space.own,
        )
        return Filling(place, job.rng(), job.replay).run(job.settings["fills"])


def _run(job: Job, space: Space) -> Tally:
    """Mounting needs root, or a user namespace in which we are."""
    if os.geteuid() == 0:
        return run_filling(job, space)
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m", "tests.torture.disk"]
    more = [str(job.seed), str(job.settings["fills"]), str(space.shared), str(space.own)]
    try:
        done = subprocess.run([*command, *more], capture_output=True, text=True)
    except FileNotFoundError:
        return Tally(not_run="needs root, or unshare for a user namespace")
    if done.returncode != 0:
        return Tally(not_run=f"no user namespace: {done.stderr.strip().splitlines()[-1:]}")
    return Tally(**json.loads(done.stdout))


SCENARIO = Scenario(_prepare, _jobs, _run, "runs on a small file system that gets full")

if __name__ == "__main__":  # in a user namespace
    seed, fills, shared, own = sys.argv[1:]
    found = run_filling(Job("disk", FULL, int(seed), {"fills": int(fills)}), Space(Path(shared), Path(own)))
    print(json.dumps(asdict(found)))
