"""How far a run is: a live bar on a terminal, otherwise a plain or JSON line at most every 30 seconds.

The caller sets the counters of a Progress and calls `tick()` whenever it comes by; ticks are cheap and
decide by the clock whether anything is shown.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from deepinfer_cli.console import Console

LINE_INTERVAL_S: Final = 30.0
BAR_INTERVAL_S: Final = 0.25


class Progress:
    """Counters of one piece of work. This class shows nothing; subclasses do."""

    interval_s: float = LINE_INTERVAL_S

    def __init__(self, console: Console, total: int | None, unit: str) -> None:
        self.console = console
        self.unit = unit
        self.total = total  # of `done`; None = not known (yet)
        self.done = 0  # finished, failed ones included
        self.failed = 0
        self.running = 0
        self.note = ""  # what the work adds to the line, such as a score so far
        self.prompt_tokens = 0
        self.output_tokens = 0
        self._started = time.monotonic()
        self._shown = self._started

    def start(self) -> None:
        self._started = self._shown = time.monotonic()

    def tick(self) -> None:
        """Show the counters if it is time to."""
        now = time.monotonic()
        if now - self._shown >= self.interval_s:
            self._shown = now
            self._show(now - self._started)

    def stop(self) -> None:
        """The work is over. What remains on the screen is up to the caller's summary."""

    def print_above(self, text: str) -> None:
        """Write whole lines of a message without disturbing what is drawn."""
        stderr = self.console.stderr
        if stderr is not None:
            stderr.write(text)
            stderr.flush()

    def _show(self, seconds: float) -> None:
        pass

    # What the lines are made of.

    def record(self, seconds: float) -> dict[str, Any]:
        rate = self.output_tokens / seconds if seconds > 0 else 0.0
        return {
            "unit": self.unit,
            "done": self.done,
            "total": self.total,
            "failed": self.failed,
            "running": self.running,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "elapsed_s": round(seconds, 3),
            "output_tokens_per_s": round(rate, 1),
            **({"note": self.note} if self.note else {}),
        }

    def line(self, seconds: float) -> str:
        of_total = "" if self.total is None else f"/{self.total}"
        parts = [f"{self.done}{of_total} {self.unit}"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.running:
            parts.append(f"{self.running} running")
        if self.output_tokens:
            parts.append(f"{self.output_tokens / max(seconds, 1e-9):.0f} tokens/s")
        parts.append(f"{seconds:.0f} s")
        if self.note:
            parts.append(self.note)
        return ", ".join(parts)


class PlainProgress(Progress):
    def _show(self, seconds: float) -> None:
        self.console.write_progress(self.line(seconds))


class JsonProgress(Progress):
    def _show(self, seconds: float) -> None:
        self.console.write_progress(self.line(seconds), self.record(seconds))

    def stop(self) -> None:
        self._show(time.monotonic() - self._started)


class BarProgress(Progress):
    """One live line, drawn by rich from tick(): no thread of its own, nothing left behind when it stops."""

    interval_s = BAR_INTERVAL_S

    def __init__(self, console: Console, total: int | None, unit: str) -> None:
        super().__init__(console, total, unit)
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def start(self) -> None:
        super().start()
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        screen = RichConsole(
            file=self.console.stderr,
            force_terminal=True,
            no_color=not self.console.has_color,
            highlight=False,
            markup=False,
        )
        self._bar = RichProgress(
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.description}", markup=False),
            TimeRemainingColumn(),
            console=screen,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=self.total)
        self._bar.start()

    def _show(self, seconds: float) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=self.done,
                total=self.total,
                description=self.line(seconds),
                refresh=True,
            )

    def print_above(self, text: str) -> None:
        if self._bar is None:
            super().print_above(text)
            return
        from rich.text import Text

        self._bar.console.print(Text.from_ansi(text.removesuffix("\n")), soft_wrap=True)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def make_progress(console: Console, total: int | None, unit: str) -> Progress:
    """The kind of progress that the settings and stderr allow."""
    talk = console.talk
    mode = talk.progress
    if mode == "auto":
        if talk.quiet:
            mode = "none"
        elif talk.log_format == "json":
            mode = "json"
        else:
            mode = "bar" if console.can_draw else "plain"
    if mode == "bar" and not console.can_draw:
        mode = "plain"  # a redrawn line needs escape bytes, which only a terminal may get
    kinds: dict[str, type[Progress]] = {
        "bar": BarProgress,
        "plain": PlainProgress,
        "json": JsonProgress,
        "none": Progress,
    }
    return kinds[mode](console, total, unit)
