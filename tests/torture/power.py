"""Power losses: what a disk may hold after one is made from a record of every call, then resumed.

A run is recorded by the preloaded library. A crash comes after any of its calls. What was synced is there;
of everything later, a file system may keep any part: names change in order, but only up to some point; bytes
of a file may be missing, cut, zeros where pages never arrived, or (some file systems, some settings) whatever
the disk's blocks held before. In that last case refusing the file, untouched, is as good as mending it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture import shim
from tests.torture.jobs import Job, Scale, Scenario, Space
from tests.torture.record import Tally
from tests.torture.shim import Call
from tests.torture.workload import ENDS, SHAPES, Place, fake_work, tiny_work

LOSS, STALE, LLAMA = (
    "power loss: unsynced bytes gone, cut or zero",
    "power loss: unsynced blocks hold old bytes",
    "power loss, tiny llama",
)
NUM_ROWS = 600
_PAGE = 4096
_REFUSED = 2
_HARMLESS = ("all", "gone", "cut", "zeros", "cut and zeros", "pages")


@dataclass
class File:
    """One inode: what is on the disk for sure, and what was asked for since."""

    synced: bytes = b""
    pending: list[Call] = field(default_factory=list)

    def after_crash(self, how: str, rng: random.Random) -> bytes:
        if how == "gone":
            return self.synced
        calls = list(self.pending)
        if how.startswith("cut") and calls:
            calls = calls[: rng.randrange(len(calls)) + 1]
            if calls[-1].kind == "w":
                last = calls[-1]
                shorter = last.first[: rng.randrange(len(last.first) + 1)]
                calls[-1] = Call("w", last.inode, last.place, shorter, b"")
        data = _applied(self.synced, calls)
        whole = _applied(self.synced, self.pending)
        if how == "cut and zeros":
            return data + bytes(max(0, len(whole) - len(data)))
        if how in ("zeros", "pages", "stale"):
            return _spoiled(data, self.pending, how, rng)
        return data


def _applied(data: bytes, calls: Sequence[Call]) -> bytes:
    content = bytearray(data)
    for call in calls:
        if call.kind == "t":
            del content[call.place :]
            content.extend(bytes(call.place - len(content)))
        else:
            content.extend(bytes(max(0, call.place - len(content))))
            content[call.place : call.place + len(call.first)] = call.first
    return bytes(content)


def _spoiled(data: bytes, calls: Sequence[Call], how: str, rng: random.Random) -> bytes:
    """Pages that `calls` wrote, as far as they wrote them, without the bytes that were meant to be there."""
    content = bytearray(data)
    for call in calls:
        if call.kind != "w":
            continue
        end = min(call.place + len(call.first), len(content))
        for page in range(call.place // _PAGE, -(-end // _PAGE)):
            if how != "zeros" and rng.random() < 0.5:
                continue
            begin, stop = max(call.place, page * _PAGE), min(end, (page + 1) * _PAGE)
            old = bytes(stop - begin)
            if how == "stale":
                other = rng.randrange(len(data))  # of the same file, as if its blocks had been used before
                old = rng.choice((rng.randbytes(stop - begin), data[other : other + stop - begin]))
            content[begin : begin + len(old)] = old
    return bytes(content)


class Disk:
    """A folder's files as the calls so far made them, and as a crash may leave them."""

    def __init__(self, start: dict[str, bytes], expected: frozenset[bytes]) -> None:
        self._expected = expected
        self.gone: set[bytes] = set()  # final rows that were on the disk once and are no more
        self._synced_names = {name: File(data) for name, data in start.items()}
        self._names = dict(self._synced_names)
        self._changes: list[dict[str, File]] = []  # names after each change since the folder was synced
        self._files: dict[int, File] = {}

    def know(self, name: str, inode: int) -> None:
        """A file that was there before."""
        self._files[inode] = self._names[name]

    def apply(self, call: Call) -> None:
        match call.kind:
            case "o":
                name = Path(call.first.decode()).name
                if self._names.get(name) is None or self._names[name] is not self._files.get(call.inode):
                    self._files[call.inode] = File()
                    self._rename({**self._names, name: self._files[call.inode]})
            case "r":
                old, new = Path(call.first.decode()).name, Path(call.second.decode()).name
                names = dict(self._names)
                names[new] = names.pop(old)
                self._rename(names)
            case "u":
                gone = Path(call.first.decode()).name
                self._rename({name: file for name, file in self._names.items() if name != gone})
            case "d" if self._changes:
                before = self.safe_rows()
                self._synced_names, self._changes = dict(self._names), []
                self.gone |= before - self.safe_rows()
            case "f" if call.inode in self._files:
                file = self._files[call.inode]
                cuts = any(earlier.kind == "t" and file.synced for earlier in file.pending)
                before = self.safe_rows() if cuts else set()
                file.synced, file.pending = _applied(file.synced, file.pending), []
                self.gone |= before - self.safe_rows() if cuts else set()
            case "w" | "t" if call.inode in self._files:
                self._files[call.inode].pending.append(call)

    def _rename(self, names: dict[str, File]) -> None:
        self._names = names
        self._changes.append(names)

    def safe_rows(self) -> set[bytes]:
        """Final rows that are on the disk whatever happens now."""
        return self._final_rows(file.synced for file in self._synced_names.values())

    def _final_rows(self, contents: Iterable[bytes]) -> set[bytes]:
        return {line for data in contents for line in data.splitlines() if line in self._expected}

    def after_crash(self, how: str, rng: random.Random) -> dict[str, bytes]:
        names = rng.choice([self._synced_names, *self._changes])
        left = {name: file.after_crash(how, rng) for name, file in names.items()}
        self.gone |= self.safe_rows() - self._final_rows(left.values())
        return left


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def put(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


@dataclass
class PowerLoss:
    """One recorded attempt, and crashes in it."""

    place: Place
    rng: random.Random
    library: Path
    log: Path
    replay: str

    def run(self, num_crashes: int, hows: Sequence[str], *, in_process: bool) -> Tally:
        start, calls, inodes = self._record()
        is_plain = self.place.shape.is_plain
        expected = frozenset(self.place.expected.splitlines() if is_plain else ())
        for number in range(num_crashes):
            how, rng = self.rng.choice(hows), random.Random(self.rng.randrange(1 << 60))
            disk = Disk(start, expected)
            for name, inode in inodes.items():
                disk.know(name, inode)
            for call in calls[: rng.randrange(len(calls) + 1)]:
                disk.apply(call)
            what = f"{self.replay} crash {number}, {how}"
            self._resume(disk.after_crash(how, rng), what, how, in_process)
            if disk.gone:
                self.place.tally.lost += len(disk.gone)
                self.place.tally.failures.append(
                    f"{what}: {len(disk.gone)} rows had been synced, and are gone"
                )
        return self.place.tally

    def _record(self) -> tuple[dict[str, bytes], list[Call], dict[str, int]]:
        """Files before the attempt, its calls, and inodes of the files."""
        place, rng = self.place, self.rng
        before = rng.choice(("nothing", "some rows", "failed rows", "lost pages"))
        if not place.shape.is_plain and before == "lost pages":
            before = "some rows"
        if before != "nothing":
            faults = (
                f"fake:0,throw_rate=0.1,seed={rng.randrange(1 << 30)}" if before == "failed rows" else None
            )
            place.run_here(model=faults if place.work.model == "fake" else None)
            with place.out.open("r+b") as file:
                size = file.seek(0, 2)
                file.truncate(rng.randrange(size // 4, size + 1))
                if before == "lost pages":
                    file.seek(rng.randrange(size // 8))
                    file.write(bytes(_PAGE))
        place.folder.mkdir(parents=True, exist_ok=True)
        start = snapshot(place.folder)
        inodes = {path.name: path.stat().st_ino for path in place.folder.iterdir()}
        pace = ("--fsync", rng.choice(("0", "0.02", "5")))
        code = place.run("--resume", *pace, env=shim.environment(self.library, place.folder, log=self.log))
        if code not in ENDS:
            place.complain(f"{self.replay}: the recorded attempt ended with {code}")
        return start, shim.read_log(self.log), inodes

    def _resume(self, files: dict[str, bytes], what: str, how: str, in_process: bool) -> None:
        place, tally = self.place, self.place.tally
        put(place.folder, files)
        tally.injected += 1
        for _ in range(2):  # a second time for rows that failed in an attempt before and are retried
            code = place.run_here("--resume") if in_process else place.run("--resume")
        if code == _REFUSED and how == "stale":
            left = {name: data for name, data in snapshot(place.folder).items() if name in files}
            if left != files:
                tally.changed += 1
                tally.failures.append(f"{what}: refused, but files were touched")
            tally.figures["refused"] = tally.figures.get("refused", 0) + 1
            return
        if code not in ENDS:
            place.complain(f"{what}: --resume ended with {code}")
        tally.compare(place.expected, place.shape.rows(place.folder), what)


def _prepare(shared: Path, _scale: Scale) -> None:
    shim.build(shared)
    fake_work(shared, NUM_ROWS, SHAPES)
    tiny_work(shared)


def _jobs(scale: Scale) -> list[Job]:
    jobs = [Job("power", LOSS, seed, {"crashes": 40, "hows": _HARMLESS}) for seed in scale.seeds(20)]
    jobs += [Job("power", STALE, seed, {"crashes": 20, "hows": ("stale",)}) for seed in scale.seeds(6)]
    return jobs + [Job("power", LLAMA, seed, {"crashes": 5, "hows": _HARMLESS}) for seed in scale.seeds(4)]


def _run(job: Job, space: Space) -> Tally:
    is_llama = job.fault == LLAMA
    shape = SHAPES[job.seed % len(SHAPES)]
    work = tiny_work(space.shared) if is_llama else fake_work(space.shared, NUM_ROWS, SHAPES)
    place = Place(work, shape, space.own / "run", Tally())
    library = shim.build(space.shared)
    loss = PowerLoss(place, job.rng(), library, space.own / "calls", job.replay)
    return loss.run(job.settings["crashes"], job.settings["hows"], in_process=not is_llama)


SCENARIO = Scenario(_prepare, _jobs, _run, "power losses made from a record of all calls, and resumed")
