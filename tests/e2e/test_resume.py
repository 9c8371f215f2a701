"""--resume through the real command: case 27, kills at random moments, pipes, and what is refused."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import (
    CASES,
    TIMEOUT_S,
    command,
    deepinfer,
    environment,
    parse_rows,
    run_fake,
    write_rows,
)

SLOW = "fake:0.001"  # seconds a token


def test_case_27(tmp_path: Path) -> None:
    """The template's rows, brought into the row schema: hashes from a run over the same input."""
    rows, out = CASES / "27_resume_input.jsonl", tmp_path / "out.jsonl"
    assert run_fake(rows, "-o", out).code == 0
    whole = out.read_bytes()
    lines = whole.decode().splitlines(keepends=True)
    template = (CASES / "27_resume_partial_output.template.jsonl").read_text().splitlines()
    failed = json.loads(lines[1])
    del failed["usage"]
    failed.update(status="error", outputs=[], error=json.loads(template[1])["error"])
    partial = lines[0] + json.dumps(failed) + "\n" + lines[2][: len(template[2])]
    out.write_text(partial)

    for refused in ((), ("-o", "-", "--resume"), ("-o", out, "--resume", "--overwrite")):
        done = run_fake(rows, *(refused or ("-o", out)))
        assert (done.code, done.stdout) == (2, b"") and "hint:" in done.stderr
        assert out.read_text() == partial

    done = run_fake(rows, "-o", out, "--resume")
    assert done.code == 0, done.stderr
    assert out.read_bytes() == whole  # w0 byte for byte; one ok row for each id
    before = out.stat()
    done = run_fake(rows, "-o", out, "--resume")
    assert done.code == 0 and "nothing is left to do" in done.stderr
    assert out.stat().st_mtime_ns == before.st_mtime_ns
    assert {path.name for path in tmp_path.iterdir()} == {"out.jsonl", "out.jsonl.run.json"}


def test_force_alone_and_folders_are_refused(tmp_path: Path) -> None:
    rows = CASES / "01_plain.jsonl"
    assert "goes with --resume" in run_fake(rows, "-o", tmp_path / "o.jsonl", "--force").stderr
    assert run_fake(rows, "-o", tmp_path, "--resume").code == 2
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert run_fake(rows, "-o", pipe, "--resume").code == 2
    assert deepinfer("run", "--validate", rows, "--resume", "-o", tmp_path / "o.jsonl").code == 2


def some_rows(count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for i in range(count):
        row: dict[str, Any] = {"id": f"r{i}", "prompt": f"row {i}", "max_tokens": 2 + i % 7}
        if i % 11 == 4:
            row["n"] = 3
        if i % 13 == 5:
            row["top_p"] = 7
        rows.append(row)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [(), ("--errors", "bad.jsonl"), ("--output-format", "openai"), ("--order", "completion")],
    ids=lambda flags: " ".join(flags),
)
def test_kills_at_random_moments(tmp_path: Path, flags: tuple[str, ...]) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", some_rows(300))
    (tmp_path / "whole").mkdir()
    args = ("run", "--model", SLOW, rows, *flags, "-o", "out.jsonl", "--max-num-seqs", "8", "--fsync", "0.05")
    assert deepinfer(*args, cwd=tmp_path / "whole").code == 3
    random_ = random.Random(str(flags))
    num_killed = 0
    for _ in range(8):
        process = subprocess.Popen(
            command(*args, "--resume"), cwd=tmp_path, env=environment(), stderr=subprocess.PIPE
        )
        out = tmp_path / "out.jsonl"
        before = out.stat().st_size if out.exists() else 0
        deadline = time.monotonic() + TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            if out.exists() and out.stat().st_size > before:
                time.sleep(random_.random() * 0.1)
                break
            time.sleep(0.005)
        number = random_.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT))
        num_killed += process.poll() is None
        process.send_signal(number)
        _, stderr = process.communicate(timeout=TIMEOUT_S)
        assert b"Traceback" not in stderr
        assert process.returncode in (-signal.SIGKILL, -signal.SIGINT, 130, 3), stderr  # also while it ends
    done = deepinfer(*args, "--resume", cwd=tmp_path)
    assert done.code == 3, done.stderr
    assert num_killed
    for name in ("out.jsonl", "bad.jsonl"):
        if (tmp_path / "whole" / name).exists():
            ours, theirs = ((p / name).read_bytes() for p in (tmp_path, tmp_path / "whole"))
            if "completion" in flags:
                assert sorted(ours.splitlines()) == sorted(theirs.splitlines())
            else:
                assert ours == theirs
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    about = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    whole = json.loads((tmp_path / "whole" / "out.jsonl.run.json").read_text())
    assert about["counts"] == whole["counts"]


def test_a_pipe_is_compared_as_it_comes(tmp_path: Path) -> None:
    data = "".join(json.dumps(row) + "\n" for row in some_rows(60)).encode()
    out = tmp_path / "out.jsonl"
    assert run_fake("-", "-o", out, stdin=data).code == 3
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    failed = json.loads(lines[3])
    failed["error"] = {"code": "aborted", "message": "x", "field": None, "line": 4, "retryable": True}
    failed.update(status="error", outputs=[])
    lines[3] = json.dumps(failed).encode() + b"\n"
    out.write_bytes(b"".join(lines[:20]) + lines[20][:30])
    done = run_fake("-", "-o", out, "--resume", stdin=data)
    assert done.code == 3 and "1 failed and are tried again" in done.stderr
    assert out.read_bytes() == whole
    changed = data.replace(b'"row 9"', b'"row nine"')
    done = run_fake("-", "-o", out, "--resume", stdin=changed)
    assert done.code == 2 and "line 10" in done.stderr
    assert out.read_bytes() == whole


def test_an_archive_as_input_and_output(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl.gz"
    assert run_fake(CASES / "22_gzip.jsonl.gz", "-o", out, "--limit", "3").code == 0
    out.write_bytes(out.read_bytes() + b"\x1f\x8b\x08\0\0")
    assert run_fake(CASES / "22_gzip.jsonl.gz", "-o", out, "--resume").code == 0
    whole = run_fake(CASES / "22_gzip.jsonl.gz").stdout
    import gzip

    assert gzip.decompress(out.read_bytes()) == whole


def test_an_input_that_ends_early_and_is_completed_later(tmp_path: Path) -> None:
    """A cut archive gives its whole rows and exit code 1; so does resuming on it."""
    out = tmp_path / "out.jsonl"
    for _ in range(2):
        done = run_fake(CASES / "23_gzip_truncated.jsonl.gz", "-o", out, "--resume")
        assert done.code == 1 and len(parse_rows(out.read_bytes())) == 19
