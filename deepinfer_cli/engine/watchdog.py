"""Notices that a run no longer moves, says so with everything that is known, and ends the process.

Watched are the loop of the main thread (a read, a row, a write or a flush that does not come back) and the
engine (a step that does not end). Waiting for a pipe that has no data is not a hang. Only time in which this
process ran is counted: a stopped process or a sleeping machine does not count.
"""

from __future__ import annotations

import faulthandler
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from deepinfer_cli.errors import EXIT_FATAL

_CHECKS = 20  # in the time limit, at most one a second
_PATIENCE_S = 5.0  # for a report: the disk it goes to may be what hangs


class WatchedEngine(Protocol):
    def progress(self) -> tuple[int, int]: ...
    def describe(self) -> str: ...


class Watchdog:
    def __init__(
        self,
        seconds: float,
        *,
        engine: WatchedEngine,
        report_beside: str | None,
        facts: Callable[[], str],
        on_hang: Callable[[str, str | None], None],
    ) -> None:
        """`seconds` 0: never. `facts`: what the loop knows, for the report. `on_hang` gets what hangs and
        where the report is, and has some seconds; then the process ends."""
        self._seconds = seconds
        self._engine = engine
        self._beside = report_beside
        self._facts = facts
        self._on_hang = on_hang
        self._ended = threading.Event()
        self._num_beats = 0
        self._doing = "starting"
        self._engine_is_busy = False

    def beat(self, doing: str, *, engine_is_busy: bool) -> None:
        """The main thread moves, and will now be `doing` something."""
        self._num_beats += 1
        self._doing = doing
        self._engine_is_busy = engine_is_busy

    def now(self, doing: str) -> None:
        """More exactly, between two beats."""
        self._doing = doing

    @contextmanager
    def watching(self) -> Iterator[Watchdog]:
        if not self._seconds:
            yield self
            return
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join(_PATIENCE_S)

    def _watch(self) -> None:
        tick = min(self._seconds / _CHECKS, 1.0)
        loop_seconds = engine_seconds = 0.0
        beats, steps = self._num_beats, self._engine.progress()
        before = time.monotonic()
        while not self._ended.wait(tick):
            now = time.monotonic()
            passed = min(now - before, 2 * tick)
            before = now
            progress = self._engine.progress()
            loop_seconds = 0.0 if self._num_beats != beats else loop_seconds + passed
            moves = progress != steps or not self._engine_is_busy
            engine_seconds = 0.0 if moves else engine_seconds + passed
            beats, steps = self._num_beats, progress
            if loop_seconds >= self._seconds:
                self._give_up(self._doing)
            if engine_seconds >= self._seconds:
                self._give_up("computing a step")

    def _give_up(self, doing: str) -> None:
        what = f"nothing has moved for {self._seconds:g} s while {doing}"
        place = self._write_report(what)
        _in_time(lambda: self._on_hang(what, place))
        os._exit(EXIT_FATAL)

    def _write_report(self, what: str) -> str | None:
        """Beside the output, else where there is room; None when it could not be written."""
        text = f"{what}\n\n{self._facts()}\nengine: {self._engine.describe()}\n\n{native_threads()}\n"
        places = [Path(f"{self._beside}.hang.txt")] if self._beside is not None else []
        name = f"deepinfer-{os.getpid()}.hang.txt"
        places += [Path(name).absolute(), Path(tempfile.gettempdir()) / name]
        for path in places:
            if _in_time(lambda path=path: _write(path, text)):  # type: ignore[misc]
                return str(path)
        return None


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
        file.flush()
        faulthandler.dump_traceback(file, all_threads=True)


def _in_time(work: Callable[[], None]) -> bool:
    """Whether `work` was done in time and without an error."""
    done = threading.Event()

    def attempt() -> None:
        try:
            work()
        except Exception:  # whatever it is, the process ends now
            return
        done.set()

    threading.Thread(target=attempt, daemon=True).start()
    return done.wait(_PATIENCE_S)


def native_threads() -> str:
    """Name, state and place in the kernel of every thread of this process."""
    lines = []
    for task in sorted(Path("/proc/self/task").glob("*"), key=lambda path: int(path.name)):
        try:
            name = (task / "comm").read_text().strip()
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            place = (task / "wchan").read_text().strip()
        except OSError:  # it has just ended, or we may not look
            continue
        lines.append(f"thread {task.name} {name}: {state} {place if place != '0' else ''}".rstrip())
    return "\n".join(lines)
