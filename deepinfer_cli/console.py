"""Everything said to people goes through here, to stderr. Rows and other data go to `Console.data`.

On a terminal there may be colour and one live bar; elsewhere no escape bytes, no carriage returns, one
complete line per message. Control characters in what others wrote (file names, model metadata) are shown
as \\xNN, so that a file cannot drive the terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, Literal

from deepinfer_cli import streams
from deepinfer_cli.errors import EXIT_BROKEN_PIPE, DeepInferError, UsageError
from deepinfer_cli.progress import Progress, make_progress

if TYPE_CHECKING:
    from deepinfer_cli.config.run_config import RunConfig

Level = Literal["trace", "debug", "info", "warning", "error"]

_RANK: Final[Mapping[Level, int]] = {"trace": 2, "debug": 1, "info": 0, "warning": -1, "error": -2}
_STYLE: Final[Mapping[str, str]] = {"error": "\033[1;31m", "warning": "\033[33m", "hint": "\033[36m"}
_RESET: Final = "\033[0m"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def printable(text: str) -> str:
    """`text` without characters that would move a cursor or change a colour; tab and newline stay."""
    safe = _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", text)
    return safe.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class Talk:
    """How to talk; the same fields as the settings progress, color, quiet, verbose, log_format, log_file."""

    progress: Literal["auto", "bar", "plain", "json", "none"] = "auto"
    color: Literal["auto", "always", "never"] = "auto"
    quiet: bool = False
    verbose: int = 0
    log_format: Literal["text", "json"] = "text"
    log_file: str | None = None


def talk_of(config: RunConfig) -> Talk:
    """How the console shall talk, from the settings that say so."""
    out = config.output
    return Talk(
        progress=out.progress,
        color=out.color,
        quiet=out.quiet,
        verbose=out.verbose,
        log_format=out.log_format,
        log_file=out.log_file,
    )


class Console:
    """Messages, warnings that come once, progress, and the way to stdout. One per process, made by main()."""

    def __init__(
        self, talk: Talk | None = None, *, stderr: IO[str] | None = None, stdout_open: bool = True
    ) -> None:
        self._stderr: IO[str] | None = stderr if stderr is not None else sys.stderr
        self._stdout_open = stdout_open
        self._data: BinaryIO | None = None
        self._log: IO[str] | None = None
        self._said: set[str] = set()
        self._progress: Progress | None = None
        self._talk = Talk()
        self.configure(talk or Talk())

    # -- how to talk ------------------------------------------------------------------------------

    @property
    def talk(self) -> Talk:
        return self._talk

    @property
    def is_terminal(self) -> bool:
        """Whether a person is likely to watch stderr."""
        return self._stderr is not None and self._stderr.isatty()

    @property
    def can_draw(self) -> bool:
        """Whether stderr can show a line that is redrawn."""
        return self.is_terminal and os.environ.get("TERM") != "dumb"

    @property
    def has_color(self) -> bool:
        if self._talk.color != "auto":
            return self._talk.color == "always"
        return self.can_draw and not os.environ.get("NO_COLOR")

    def configure(self, talk: Talk) -> None:
        """Talk like this from now on. Opens the log file; fails when it cannot be opened."""
        if talk.log_file != self._talk.log_file:
            if self._log is not None:
                self._log.close()
            self._log = None
            if talk.log_file is not None:
                try:
                    path = Path(talk.log_file)
                    self._log = path.open("a", encoding="utf-8", buffering=1)
                except OSError as e:
                    raise UsageError(f"cannot write the log file {talk.log_file}: {e.strerror}") from None
        self._talk = talk

    # -- messages ---------------------------------------------------------------------------------

    def trace(self, message: str) -> None:
        """Shown with -vv."""
        self._say("trace", message)

    def debug(self, message: str) -> None:
        """Shown with -v."""
        self._say("debug", message)

    def info(self, message: str) -> None:
        """Shown unless -q."""
        self._say("info", message)

    def warn(self, message: str, hint: str | None = None) -> None:
        """Something the user should know; the work goes on."""
        self._say("warning", message, hint)

    def error(self, message: str, hint: str | None = None) -> None:
        """The one sentence for a failure. Commands raise DeepInferError instead; main() calls this."""
        self._say("error", message, hint)

    def once(self, key: str, message: str, *, level: Level = "warning", hint: str | None = None) -> None:
        """Say it the first time only; `key` identifies what is said, whatever its wording."""
        if key not in self._said:
            self._said.add(key)
            self._say(level, message, hint)

    def _say(self, level: Level, message: str, hint: str | None = None) -> None:
        message = printable(message)
        hint = None if hint is None else printable(hint)
        if self._log is not None:
            make = self._as_json if self._json else self._dated
            self._log.write(make(level, message, hint))
        if _RANK[level] > (-1 if self._talk.quiet else self._talk.verbose):
            return
        if self._json:
            self._write(self._as_json(level, message, hint))
        else:
            self._write(self._as_text(level, message, hint))

    @property
    def _json(self) -> bool:
        return self._talk.log_format == "json"

    def _styled(self, name: str) -> str:
        return f"{_STYLE[name]}{name}:{_RESET}" if self.has_color else f"{name}:"

    def _as_text(self, level: Level, message: str, hint: str | None) -> str:
        prefix = f"{self._styled(level)} " if level in ("warning", "error") else ""
        text = f"{prefix}{message}\n"
        return text if hint is None else f"{text}  {self._styled('hint')} {hint}\n"

    def _as_json(self, level: Level, message: str, hint: str | None, **more: Any) -> str:
        record: dict[str, Any] = {"time": round(time.time(), 3), "level": level, "message": message, **more}
        if hint is not None:
            record["hint"] = hint
        return json.dumps(record, ensure_ascii=False) + "\n"

    @staticmethod
    def _dated(level: Level, message: str, hint: str | None) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        tail = "" if hint is None else f" (hint: {hint})"
        return f"{stamp} {level:7} {message}{tail}\n"

    def _write(self, text: str) -> None:
        """Whole lines to stderr. Nobody listening is no reason to stop a run."""
        if self._stderr is None:
            return
        try:
            if self._progress is not None:
                self._progress.print_above(text)
            else:
                self._stderr.write(text)
                self._stderr.flush()
        except (OSError, ValueError):
            self._stderr = None

    # -- progress ---------------------------------------------------------------------------------

    @contextmanager
    def progress(self, total: int | None = None, unit: str = "rows") -> Iterator[Progress]:
        """While the block runs, show how far it is. `total` may become known later (Progress.total)."""
        shown = make_progress(self, total=total, unit=unit)
        self._progress = shown
        try:
            shown.start()
            yield shown
        finally:
            shown.stop()
            self._progress = None

    def write_progress(self, text: str, record: Mapping[str, Any] | None = None) -> None:
        """One progress line: `text`, or as JSON with `record` when messages or progress are JSON."""
        line = f"{printable(text)}\n"
        if record is not None:
            line = self._as_json("info", printable(text), None, event="progress", **record)
        if self._stderr is not None:
            try:
                self._stderr.write(line)
                self._stderr.flush()
            except (OSError, ValueError):
                self._stderr = None

    @property
    def stderr(self) -> IO[str] | None:
        return self._stderr

    # -- data -------------------------------------------------------------------------------------

    @property
    def data(self) -> BinaryIO:
        """stdout for rows, paths and other data (bytes, unbuffered). From the first use on, descriptor 1
        is stderr for everybody else. A reader that went away raises BrokenPipeError; main() ends quietly.
        """
        if self._data is None:
            if not self._stdout_open:
                raise UsageError("stdout is closed, so there is nowhere to write to", "use -o FILE")
            self._data = streams.take_stdout()
        return self._data

    def guard_stdout(self) -> None:
        """Take stdout now, before any library gets the chance to write there."""
        if self._stdout_open:
            _ = self.data

    def write_data(self, data: bytes) -> None:
        """All of `data` to stdout: a pipe may take it in pieces."""
        view = memoryview(data)
        while view:
            view = view[self.data.write(view) :]

    def print_data(self, text: str) -> None:
        """Data that is text, such as a path or a resolved configuration; a newline is added."""
        self.write_data((text + "\n").encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def report(console: Console, failure: DeepInferError) -> int:
    """Tell the user about a failure, unless nobody can be told; its exit code."""
    if failure.exit_code != EXIT_BROKEN_PIPE:
        console.error(failure.message, failure.hint)
    return failure.exit_code
