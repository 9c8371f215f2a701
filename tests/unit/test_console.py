"""What is said on stderr, in every mode, and that stdout keeps out of it."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepinfer_cli.console import Console, Talk, printable
from deepinfer_cli.errors import UsageError
from deepinfer_cli.progress import LINE_INTERVAL_S, BarProgress, PlainProgress, make_progress
from tests.support.cli import clean_environ


def said(talk: Talk | None = None, **more: object) -> tuple[Console, io.StringIO]:
    stderr = io.StringIO()
    return Console(talk, stderr=stderr), stderr


def speak(console: Console) -> None:
    console.trace("t")
    console.debug("d")
    console.info("i")
    console.warn("w", "h1")
    console.error("e", "h2")


WARNING_AND_ERROR = "warning: w\n  hint: h1\nerror: e\n  hint: h2\n"


@pytest.mark.parametrize(
    ("talk", "text"),
    [
        (Talk(), "i\n" + WARNING_AND_ERROR),
        (Talk(quiet=True), WARNING_AND_ERROR),
        (Talk(verbose=1), "d\ni\n" + WARNING_AND_ERROR),
        (Talk(verbose=2), "t\nd\ni\n" + WARNING_AND_ERROR),
    ],
)
def test_verbosity(talk: Talk, text: str) -> None:
    console, stderr = said(talk)
    speak(console)
    assert stderr.getvalue() == text


def test_json_messages() -> None:
    console, stderr = said(Talk(log_format="json"))
    console.warn("w\n2", "h")
    record = json.loads(stderr.getvalue())
    assert record.pop("time") == pytest.approx(time.time(), abs=60)
    assert record == {"level": "warning", "message": "w\n2", "hint": "h"}


def test_once_says_it_once() -> None:
    console, stderr = said()
    console.once("a", "first")
    console.once("a", "second wording")
    console.once("b", "other", level="info")
    assert stderr.getvalue() == "warning: first\nother\n"


def test_color_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    console, stderr = said(Talk(color="always"))
    console.error("e")
    assert stderr.getvalue() == "\033[1;31merror:\033[0m e\n"
    for variable, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(variable, value)
        assert not said()[0].has_color


def test_foreign_control_characters_are_spelled_out() -> None:
    assert printable("a\x1b[31m\r\x9b\u2028b\tc\n") == "a\\x1b[31m\\x0d\\x9b\\u2028b\tc\n"
    assert printable("x\ud800") == "x\\ud800"


def test_log_file_gets_what_the_screen_does_not(tmp_path: Path) -> None:
    path = tmp_path / "log"
    console, stderr = said(Talk(quiet=True, log_file=str(path)))
    console.debug("d")
    console.warn("w", "h")
    console.close()
    lines = path.read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["debug   d", "warning w (hint: h)"]
    assert stderr.getvalue() == "warning: w\n  hint: h\n"
    with pytest.raises(UsageError, match="cannot write the log file"):
        Console(Talk(log_file=str(tmp_path)))


def test_nobody_listening_is_no_failure() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w", buffering=1) as stderr:
        console = Console(stderr=stderr)
        console.info("into the void")
        console.info("again")
        with console.progress(total=1) as shown:
            shown.interval_s = 0
            shown.tick()
        stderr.close = lambda: None  # type: ignore[method-assign]


# -- progress -------------------------------------------------------------------------------------


def test_plain_lines_come_at_most_every_30_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("deepinfer_cli.progress.time.monotonic", lambda: now)
    console, stderr = said()
    with console.progress(total=10) as shown:
        assert isinstance(shown, PlainProgress)
        for _ in range(121):
            shown.tick()
            now += 0.5
        shown.done, shown.failed, shown.running, shown.output_tokens = 5, 1, 3, 6000
        now += LINE_INTERVAL_S
        shown.tick()
    lines = stderr.getvalue().splitlines()
    assert lines[0] == "0/10 rows, 30 s"
    assert lines[-1] == "5/10 rows, 1 failed, 3 running, 66 tokens/s, 90 s"
    assert len(lines) == 3


def test_json_progress_ends_with_the_totals() -> None:
    console, stderr = said(Talk(progress="json"))
    with console.progress(unit="files") as shown:
        shown.done = 2
    record = json.loads(stderr.getvalue())
    assert (record["event"], record["done"], record["total"], record["unit"]) == (
        "progress",
        2,
        None,
        "files",
    )


@pytest.mark.parametrize("mode", ["auto", "bar", "plain", "none"])
def test_no_escapes_where_there_is_no_terminal(mode: str) -> None:
    console, stderr = said(Talk(progress=mode))  # type: ignore[arg-type]
    assert not isinstance(make_progress(console, None, "rows"), BarProgress)
    with console.progress(total=3) as shown:
        shown.interval_s = 0
        shown.done = 1
        shown.tick()
        console.info("in between")
    assert "\033" not in stderr.getvalue()
    assert "\r" not in stderr.getvalue()
    assert ("1/3 rows" in stderr.getvalue()) == (mode != "none")


ON_A_TERMINAL = """
from deepinfer_cli.console import Console
console = Console()
with console.progress(total=3) as shown:
    shown.interval_s = 0
    shown.done = 1
    shown.tick()
    console.warn("in between")
    shown.done = 3
    shown.tick()
console.info("summary")
"""


def on_terminal(code: str, **env: str) -> str:
    """Output of `code` with a terminal as stderr."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=follower, env=clean_environ(env)
    )
    os.close(follower)
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(leader)
    assert process.wait(60) == 0
    return b"".join(chunks).decode()


def test_a_terminal_gets_a_bar() -> None:
    shown = on_terminal(ON_A_TERMINAL, TERM="xterm")
    assert "1/3 rows" in shown
    assert "\033[33mwarning:\033[0m in between" in shown
    assert shown.endswith("summary\r\n")


def test_a_terminal_without_colour_gets_a_bar_without_colour() -> None:
    shown = on_terminal(ON_A_TERMINAL, TERM="xterm", NO_COLOR="1")
    assert "warning: in between" in shown
    assert "\033[3" not in shown  # cursor movement only


def test_a_dumb_terminal_gets_lines() -> None:
    shown = on_terminal(ON_A_TERMINAL, TERM="dumb")
    assert "\033" not in shown
    assert shown.splitlines()[-1] == "summary"


# -- stdout ---------------------------------------------------------------------------------------

INTRUDERS = """
import ctypes, os, subprocess, sys
from deepinfer_cli.console import Console
print("before")
console = Console()
console.guard_stdout()
print("print")
sys.stdout.flush()
os.write(1, b"raw\\n")
ctypes.CDLL(None).puts(b"libc")
ctypes.CDLL(None).fflush(None)
subprocess.run(["sh", "-c", "echo child"])
console.data.write(b"{}\\n")
console.print_data("path")
"""


def test_only_data_reaches_stdout() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTRUDERS], capture_output=True, text=True, check=True, env=clean_environ()
    )
    assert done.stdout == "before\n{}\npath\n"
    assert done.stderr == "print\nraw\nlibc\nchild\n"
