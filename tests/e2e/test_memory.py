"""Memory is bounded by configuration, not by the input."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.support.runs import command, environment

ROWS = 40_000
WARM_UP = 10_000  # rows until caches and allocator have found their size
ID_BYTES = 24  # a row in the table of seen ids


def private_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1])


@pytest.mark.slow
def test_private_memory_is_flat(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for i in range(ROWS):
            file.write(json.dumps({"id": f"row-{i}", "prompt": f"item {i}", "max_tokens": 1}) + "\n")
    process = subprocess.Popen(
        command("run", "--model", "fake", path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    warm = last = 0
    for count, _ in enumerate(process.stdout, 1):
        if count == WARM_UP:
            warm = private_kib(process.pid)
        if count == ROWS - 5000:  # near the end, while the run is still in full swing
            last = private_kib(process.pid)
    process.communicate()
    assert process.returncode == 0
    ids = ID_BYTES * (ROWS - 5000 - WARM_UP) / 1024
    assert last - ids <= warm * 1.05, (warm, last, ids)


@pytest.mark.slow
def test_an_input_larger_than_the_memory_allowed() -> None:
    """600 MB of rows through a process that may hold 300 MB."""
    limit = 300 << 20

    def lower_limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    process = subprocess.Popen(
        command("run", "--model", "fake", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        preexec_fn=lower_limit,
    )
    assert process.stdin is not None and process.stdout is not None
    sink = process.stdin
    filler = b"x" * 1_000_000

    def feed() -> None:
        with sink:
            for i in range(600):  # metadata comes back, so the output is as large as the input
                sink.write(b'{"id": %d, "prompt": "p", "max_tokens": 1, "metadata": "%s"}\n' % (i, filler))

    feeder = threading.Thread(target=feed)
    feeder.start()
    with process.stdout:
        sizes = [len(line) for line in process.stdout]
    feeder.join()
    assert process.wait(60) == 0
    assert len(sizes) == 600 and min(sizes) > len(filler)


def test_a_slow_first_row_does_not_let_the_rest_pile_up(tmp_path: Path) -> None:
    """Finished rows wait for the first one, but only within the window; the run still ends in order."""
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        file.write(json.dumps({"prompt": "slow", "max_tokens": 3000, "ignore_eos": True}) + "\n")
        for i in range(9000):
            file.write(json.dumps({"id": i, "prompt": None if i % 2 else "x", "max_tokens": 1}) + "\n")
    done = subprocess.run(
        command("run", "--model", "fake", path), capture_output=True, env=environment(), timeout=300
    )
    assert done.returncode == 3
    indices = [json.loads(line)["index"] for line in done.stdout.splitlines()]
    assert indices == list(range(9001))


LIMIT = 200 << 20


def hostile_rows(path: Path) -> int:
    """Rows that want much memory: of 3 MB, prompts to the end of the context, thousands of samples, and one
    slow row in front that all others wait for."""
    rows: list[dict[str, object]] = [{"prompt": "slow", "max_tokens": 3000, "ignore_eos": True}]
    rows += [{"prompt": "p", "max_tokens": 1, "metadata": {"filler": "x" * 3_000_000}} for _ in range(40)]
    rows += [
        {"prompt": "x" * 4000, "max_tokens": 1, "stop": [f"{i} {j}" for j in range(100)]} for i in range(100)
    ]
    rows += [{"prompt": "x" * 3900, "max_tokens": 2, "n": 1000}]
    rows += [{"prompt": "p", "max_tokens": 1, "logit_bias": {str(t): 1 for t in range(250)}}] * 100
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return len(rows)


def test_the_whole_process_stays_below_max_memory(tmp_path: Path) -> None:
    path, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    count = hostile_rows(path)
    process = subprocess.Popen(
        command("run", "--model", "fake", "--max-memory", str(LIMIT), path, "-o", out),
        stderr=subprocess.PIPE,
        env=environment(),
    )
    most = 0
    while process.poll() is None:
        with contextlib.suppress(OSError, AssertionError):  # it has just ended
            most = max(most, private_kib(process.pid))
        time.sleep(0.01)
    assert process.stderr is not None
    stderr = process.stderr.read().decode()
    process.stderr.close()
    assert process.returncode in (0, 3), stderr
    assert "memory of 200 MiB: weights 0 MiB" in stderr
    rows = out.read_bytes().splitlines()
    assert len(rows) == count
    assert 0 < most * 1024 <= LIMIT, most


def test_an_impossible_bound_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "x"}\n')
    done = subprocess.run(
        command("run", "--model", "fake", "--max-memory", "50MiB", path),
        capture_output=True,
        env=environment(),
        timeout=300,
    )
    assert done.returncode == 2 and done.stdout == b""
    assert b"max_memory is too small" in done.stderr and b"hint: --max-memory" in done.stderr
