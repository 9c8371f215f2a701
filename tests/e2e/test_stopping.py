"""Every way in which a run ends early: signals at any moment, a reader that goes away, things that hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import environment, parse_rows, write_rows

DEADLINE_S = 60.0  # generous: only a hang is a failure
# A run in whose third step the device hangs for longer than any deadline here. Steps take long enough that
# all rows of a file are in the engine when the first step ends.
HANGS = "fake:0.3,hang_at_step=2,hang_seconds=600"
RUN = "from deepinfer_cli.__main__ import main; sys.exit(main(sys.argv[1:]))"


class Process:
    """The command as a child, with all that it says."""

    def __init__(self, *args: str | Path, prelude: str = "", stdin: int | None = None, **kwargs: Any) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", f"import sys\n{prelude}\n{RUN}", *map(str, args)],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            **kwargs,
        )

    def wait_for_stderr(self, text: str) -> None:
        assert self.popen.stderr is not None
        while text.encode() not in self.popen.stderr.readline():
            assert self.popen.poll() is None

    def end(self) -> tuple[int, str]:
        """Exit code and stderr; fails when the process does not end."""
        try:
            _, stderr = self.popen.communicate(timeout=DEADLINE_S)
        finally:
            self.popen.kill()
        assert b"Traceback" not in stderr
        return self.popen.returncode, stderr.decode()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def rows_file(folder: Path, count: int, max_tokens: int) -> Path:
    rows = [
        {"id": i, "prompt": f"row {i}", "max_tokens": max_tokens, "ignore_eos": True} for i in range(count)
    ]
    return write_rows(folder / "rows.jsonl", rows)


def quick_then_slow(folder: Path) -> Path:
    """Six rows, of which the first one is finished before HANGS hangs."""
    rows = [{"id": i, "prompt": "x", "max_tokens": 30 if i else 1, "ignore_eos": True} for i in range(6)]
    return write_rows(folder / "rows.jsonl", rows)


def attempt_of(out: Path) -> dict[str, Any]:
    attempt: dict[str, Any] = json.loads(Path(f"{out}.run.json").read_text())["attempts"][-1]
    return attempt


@pytest.mark.slow
def test_what_only_waits_is_given_up_at_once(tmp_path: Path) -> None:
    # 200 rows wait in the engine; two at a time take a second.
    rows, out = rows_file(tmp_path, 200, max_tokens=25), tmp_path / "out.jsonl"
    process = Process("run", "--model", "fake:0.02", "--max-num-seqs", "2", rows, "-o", out)
    wait_until(lambda: out.exists() and out.stat().st_size > 0)
    before = len(parse_rows(out.read_bytes()))
    process.popen.send_signal(signal.SIGINT)
    code, stderr = process.end()
    done = parse_rows(out.read_bytes())
    assert code == 130 and "abandoned" in stderr
    assert {row["status"] for row in done} == {"ok"}
    assert before <= len(done) <= before + 8
    about = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    assert about["counts"]["abandoned"] > 100


def test_what_does_not_end_in_time_is_abandoned(tmp_path: Path) -> None:
    rows, out = quick_then_slow(tmp_path), tmp_path / "out.jsonl"
    prelude = "from deepinfer_cli.engine import signals; signals.GRACE_SECONDS = 0.3"
    process = Process("run", "--model", HANGS, rows, "-o", out, prelude=prelude)
    wait_until(lambda: out.exists() and out.stat().st_size > 0)
    process.popen.send_signal(signal.SIGTERM)
    code, stderr = process.end()
    assert code == 143 and "5 abandoned" in stderr
    assert [row["id"] for row in parse_rows(out.read_bytes())] == [0]
    attempt = attempt_of(out)
    assert (attempt["status"], attempt["exit_code"]) == ("interrupted", 143)


def test_a_second_signal_does_not_wait_for_a_hung_step(tmp_path: Path) -> None:
    process = Process("run", "--model", HANGS, quick_then_slow(tmp_path))
    assert process.popen.stdout is not None and process.popen.stdout.readline()
    process.popen.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.popen.poll() is None
    process.popen.send_signal(signal.SIGINT)
    assert process.end()[0] == 130


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_a_model_is_loaded(tmp_path: Path, number: signal.Signals, code: int) -> None:
    # The main thread is in native code for a long time, as when weights are packed.
    prelude = """
from deepinfer_cli import _native
from deepinfer_cli.models import fake
def make_executor(self, pool):
    print("loading", file=sys.stderr, flush=True)
    _native.dram_read_gbps(600.0, pool)
fake.FakeModel.make_executor = make_executor
"""
    out = tmp_path / "out.jsonl"
    rows = rows_file(tmp_path, 5, max_tokens=2)
    process = Process("run", "--model", "fake", "--threads", "1", rows, "-o", out, prelude=prelude)
    process.wait_for_stderr("loading")
    process.popen.send_signal(number)
    assert process.end()[0] == code
    assert not out.exists()


@pytest.mark.parametrize("mode", ["--validate", "--dry-run", "--strict"])
def test_a_signal_while_rows_are_checked(tmp_path: Path, mode: str) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    read_end, write_end = os.pipe()
    process = Process(
        "run",
        "--model",
        "fake",
        mode,
        "-",
        stdin=read_end,
        prelude=f"import os; os.environ['TMPDIR'] = '{temporary}'",
    )
    os.close(read_end)
    os.write(write_end, b'{"prompt": "x"}\n')
    if mode == "--strict":
        wait_until(lambda: any(temporary.iterdir()))  # the copy that is read twice
    else:
        time.sleep(1.0)
    process.popen.send_signal(signal.SIGINT)
    assert process.end()[0] == 130
    os.close(write_end)
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_closed_pipe_does_not_wait_for_a_hung_step(tmp_path: Path) -> None:
    process = Process("run", "--model", HANGS, quick_then_slow(tmp_path))
    assert process.popen.stdout is not None
    assert json.loads(process.popen.stdout.readline())["id"] == 0
    process.popen.stdout.close()
    process.popen.stdout = None
    code, stderr = process.end()
    assert code in (141, -signal.SIGPIPE) and "error" not in stderr


def check_report(text: str) -> None:
    assert text.startswith("nothing has moved for")
    assert '"core":' in text and "di-engine" in text and "in the engine" in text
    assert "most recent call first" in text  # the stacks of Python's threads


def test_a_hung_step_is_reported(tmp_path: Path) -> None:
    rows, out = rows_file(tmp_path, 5, max_tokens=25), tmp_path / "out.jsonl"
    process = Process("run", "--model", HANGS, "--watchdog", "1", rows, "-o", out)
    code, stderr = process.end()
    report = tmp_path / "out.jsonl.hang.txt"
    assert code == 1 and str(report) in stderr and "hint:" in stderr
    check_report(report.read_text())
    assert '"computing":true' in report.read_text()
    assert attempt_of(out)["status"] == "hung"


def test_a_hung_write_is_reported(tmp_path: Path) -> None:
    # Nobody reads the pipe.
    rows = [{"prompt": "x", "max_tokens": 1, "metadata": {"long": "x" * 200_000}}] * 3
    path = write_rows(tmp_path / "rows.jsonl", rows)
    process = Process("run", "--model", "fake", "--watchdog", "1", path, cwd=tmp_path)
    assert process.popen.wait(DEADLINE_S) == 1
    _, stderr = process.end()
    assert "while writing standard output" in stderr
    (report,) = tmp_path.glob("deepinfer-*.hang.txt")
    check_report(report.read_text())


def test_an_idle_input_is_no_hang() -> None:
    read_end, write_end = os.pipe()
    process = Process("run", "--model", "fake", "--watchdog", "0.4", "-", stdin=read_end)
    os.close(read_end)
    assert process.popen.stdout is not None
    os.write(write_end, b'{"id": 1, "prompt": "x", "max_tokens": 1}\n')
    assert json.loads(process.popen.stdout.readline())["id"] == 1
    time.sleep(1.5)
    os.close(write_end)
    assert process.end()[0] == 0


@pytest.mark.slow
def test_a_slow_run_is_no_hang(tmp_path: Path) -> None:
    process = Process(
        "run", "--model", "fake:0.1", "--watchdog", "0.8", rows_file(tmp_path, 1, max_tokens=15)
    )
    assert process.end()[0] == 0
