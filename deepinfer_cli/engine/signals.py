"""Ctrl-C in two stages: the first one ends the run in good order, the second one at once.

A thread hears of signals through a pipe that the C handler writes to, so that they are noticed while the main
thread is in a long native call or a write that hangs.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from deepinfer_cli.errors import DeepInferError, Interrupted, Terminated

GRACE_SECONDS = 10.0  # from the first signal to giving up what still runs
_WRITE_SECONDS = 15.0  # then, for what is finished to be written and flushed
_RAISE_SECONDS = 1.0  # outside of rows there is nothing to finish
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Context manager. Inside of `rows()` the first signal sets a flag that the loop looks at; elsewhere, as
    while a model is loaded, it ends the command with Interrupted or Terminated."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._since = 0.0
        self._is_polite = False
        self._previous: dict[int, Any] = {}
        self._previous_fd = -1
        self._heard = self._told = -1

    def __enter__(self) -> StopRequest:
        self._heard, self._told = os.pipe()
        os.set_blocking(self._told, False)
        self._previous_fd = signal.set_wakeup_fd(self._told, warn_on_full_buffer=False)
        for number in _SIGNALS:
            # A process started with a signal ignored (nohup, a background job) keeps ignoring it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._on_signal)
        threading.Thread(target=self._listen, args=(self._heard,), name="signals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        os.close(self._told)  # the listener closes its own end

    @contextmanager
    def rows(self) -> Iterator[None]:
        self._is_polite = True
        try:
            yield
        finally:
            self._is_polite = False

    @property
    def requested(self) -> bool:
        return self.signal_number is not None

    @property
    def seconds_left(self) -> float:
        """Until what still runs is given up."""
        return max(0.0, self._since + GRACE_SECONDS - time.monotonic())

    @property
    def exit_code(self) -> int:
        return 128 + (self.signal_number or 0)

    def error(self) -> DeepInferError:
        if self.signal_number == signal.SIGTERM:
            return Terminated("terminated")
        return Interrupted("interrupted")

    def _request(self, number: int) -> None:
        if self.signal_number is None:
            self._since = time.monotonic()
            self.signal_number = number

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """In the main thread, as soon as it runs Python code again."""
        self._request(number)
        if not self._is_polite:
            raise self.error()

    def _listen(self, heard: int) -> None:
        deadline: float | None = None
        try:
            while True:
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not select.select([heard], [], [], timeout)[0]:
                    self._leave("the run did not end in time")
                numbers = os.read(heard, 1)
                if not numbers:
                    return  # __exit__
                if numbers[0] not in self._previous:
                    continue
                if deadline is not None:
                    self._leave(None)  # second signal: no more waiting for anything
                self._request(numbers[0])
                patience = GRACE_SECONDS + _WRITE_SECONDS if self._is_polite else _RAISE_SECONDS
                deadline = time.monotonic() + patience
        finally:
            os.close(heard)

    def _leave(self, why: str | None) -> None:
        if why is not None and self._is_polite and sys.stderr is not None:
            try:
                os.write(2, f"error: {why}\n".encode())
            except OSError:
                pass
        os._exit(self.exit_code)
