"""Ctrl-C in two stages: the first one ends the run in good order, the second one at once."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType
from typing import Any

GRACE_SECONDS = 10.0  # from the first signal to giving up what still runs
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Context manager that turns SIGINT and SIGTERM into a flag the loop looks at."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._since = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in _SIGNALS:
            # A process started with a signal ignored (nohup, a background job) keeps ignoring it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.signal_number is not None:
            os._exit(128 + number)  # second signal: no more waiting for anything
        self.signal_number = number
        self._since = time.monotonic()

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
