"""Processes that check finished texts, beside the run. They start with the first text and end with the pool.

Python's own ways of making processes either fork this one, whose engine has threads, or import the program's
main module again; a plain new interpreter does neither. When this process dies in whatever way, the pipes
close and the workers end; one that is deep in a check is ended by its own time limit.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import deepinfer_cli
from deepinfer_cli.constraints.types import CheckSpec
from deepinfer_cli.constraints.validate import Verdict
from deepinfer_cli.constraints.worker import READY, receive, send

ROW_SECONDS = 1.0  # of processor time
MAX_WAITING = 512  # rows given in that no worker has begun with
_BACKLOG = 16  # rows waiting for each worker before another is started
_MOST_WORKERS = 8
_ROOT = str(Path(deepinfer_cli.__file__).resolve().parents[1])

TIMEOUT = Verdict("timeout", f"the check took more than {ROW_SECONDS:g} s of processor time")


class Worker:
    """One process. Not started before its first job, and again after each one that it did not survive."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def check(self, spec: CheckSpec, texts: Sequence[str]) -> list[Verdict]:
        """One verdict for each text; all of a row share its time limit."""
        failure = ""
        for _ in range(2):  # what kills a process twice is the row's own doing
            try:
                requests, answers = self._pipes()
            except (OSError, RuntimeError) as error:
                failure = f"no process for it can be started: {error}"
                continue
            try:
                send(requests, (spec, texts, self._seconds))
                found = receive(answers)
            except OSError:
                found = None
            if isinstance(found, list):
                return found
            code = self._end()
            if code == -signal.SIGPROF:
                return [TIMEOUT] * len(texts)
            failure = found if isinstance(found, str) else f"its process ended with {code}"
        return [Verdict("unchecked", failure)] * len(texts)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None:
            with self._lock:
                if self._is_closed:
                    raise RuntimeError("the run is over")
                self._process = _start()
            said = receive(self._process.stdout)  # type: ignore[arg-type]
            if said != READY:
                code = self._end()
                raise RuntimeError(said if isinstance(said, str) else f"it ended with {code}")
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _end(self) -> int:
        """The exit code of the process, which is killed if it lives."""
        process, self._process = self._process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:  # what was not sent has nobody to go to
                pass
        try:
            return process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def close(self) -> None:
        """From any thread: a check that is under way comes to nothing."""
        with self._lock:
            self._is_closed = True
            process = self._process
        if process is not None:
            process.kill()
            process.wait()


_LAST_WORDS_S = 2.0  # from closed pipes to the end of a process


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "deepinfer_cli.constraints.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        process_group=0,  # Ctrl-C is for the run, which ends its workers when it has finished its rows
    )


def most_workers() -> int:
    return max(2, min(_MOST_WORKERS, len(os.sched_getaffinity(0)) // 4))


Deliver = Callable[[int, list[Verdict]], None]  # (ordinal, verdicts), from threads of the pool


class CheckPool:
    """Jobs in, verdicts out in any order. `submit` belongs to one thread."""

    def __init__(
        self, deliver: Deliver, *, seconds: float = ROW_SECONDS, max_workers: int | None = None
    ) -> None:
        self._deliver = deliver
        self._seconds = seconds
        self._max_workers = max_workers or most_workers()
        self._jobs: queue.SimpleQueue[tuple[int, CheckSpec, Sequence[str]] | None] = queue.SimpleQueue()
        self._workers: list[Worker] = []
        self._threads: list[threading.Thread] = []

    @property
    def has_room(self) -> bool:
        return self._jobs.qsize() < MAX_WAITING

    def submit(self, ordinal: int, spec: CheckSpec, texts: Sequence[str]) -> None:
        """Never waits: whoever hands in more than there is room for only holds more memory."""
        self._jobs.put((ordinal, spec, texts))
        num = len(self._workers)
        if num == 0 or (num < self._max_workers and self._jobs.qsize() > _BACKLOG * num):
            worker = Worker(self._seconds)
            thread = threading.Thread(target=self._run, args=(worker,), name="check", daemon=True)
            self._workers.append(worker)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for worker in self._workers:
            worker.close()
        for thread in self._threads:
            thread.join(_LAST_WORDS_S)

    def _run(self, worker: Worker) -> None:
        while (job := self._jobs.get()) is not None:
            ordinal, spec, texts = job
            self._deliver(ordinal, worker.check(spec, texts))
