"""The process around the rows: pipes, signals, full disks, and what must not be printed."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.runs import CASES, command, deepinfer, environment, parse_rows, run_fake, write_rows

# A token takes this long in the fake model: rows of 50 tokens then take about a second of wall time.
SLOW = "fake:0.002"
DEADLINE_S = 60.0  # generous: only a hang is a failure


def start(*args: str | Path, **kwargs: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), **kwargs
    )


def many_rows(path: Path, count: int, max_tokens: int = 20) -> Path:
    rows = [
        {"id": f"r{i}", "prompt": f"row {i}", "max_tokens": max_tokens, "ignore_eos": True}
        for i in range(count)
    ]
    return write_rows(path, rows)


def read_line(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


@pytest.mark.slow
def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    rows = many_rows(tmp_path / "rows.jsonl", 5000)
    process = start("run", "--model", SLOW, rows)
    assert json.loads(read_line(process.stdout))["id"] == "r0"
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    process.wait(DEADLINE_S)
    stderr = process.stderr.read().decode()
    process.stderr.close()
    assert process.returncode in (141, -signal.SIGPIPE)
    assert "Traceback" not in stderr and "error" not in stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_whole_rows_in_order(tmp_path: Path, number: signal.Signals, code: int) -> None:
    rows = many_rows(tmp_path / "rows.jsonl", 2000, max_tokens=4)
    out = tmp_path / "out.jsonl"
    process = start("run", "--model", SLOW, rows, "-o", out)
    deadline = time.monotonic() + DEADLINE_S
    while not (out.exists() and out.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code, stderr
    done = parse_rows(out.read_bytes())
    assert 0 < len(done) < 2000
    assert [row["index"] for row in done] == list(range(len(done)))
    assert b"ok" in stderr and b"Traceback" not in stderr
    run_file = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    assert run_file["attempts"][-1]["status"] == "interrupted"
    assert run_file["attempts"][-1]["exit_code"] == code


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    # One row that would run for minutes: the first signal waits for it, the second one does not.
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "x", "max_tokens": 4000, "ignore_eos": True}])
    process = start("run", "--model", "fake:0.1", rows)
    assert process.stderr is not None
    while b"unless a row says otherwise" not in read_line(process.stderr):
        pass
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130


def test_a_signal_while_waiting_for_input() -> None:
    process = start("run", "--model", "fake", "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"prompt": "x", "max_tokens": 1}\n')
    process.stdin.flush()
    assert read_line(process.stdout)
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_S) == 130
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def test_a_full_device_is_named() -> None:
    done = run_fake(CASES / "01_plain.jsonl", "-o", "/dev/full")
    assert done.code == 1
    assert "/dev/full" in done.stderr and "No space left" in done.stderr


def test_a_full_device_as_stdout() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("run", "--model", "fake", CASES / "01_plain.jsonl"),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=DEADLINE_S,
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr and b"Traceback" not in done.stderr


def test_no_colour_and_no_redrawing_in_a_file() -> None:
    done = run_fake(CASES / "06_bad_middle_line.jsonl", env={"NO_COLOR": "1"})
    assert "\x1b" not in done.stderr and "\r" not in done.stderr


def test_the_same_file_in_and_out_is_refused(tmp_path: Path) -> None:
    rows = many_rows(tmp_path / "rows.jsonl", 3)
    before = rows.read_bytes()
    link = tmp_path / "link.jsonl"
    link.hardlink_to(rows)
    for target in (rows, link):
        done = run_fake(rows, "-o", target, "--overwrite")
        assert (done.code, done.stdout) == (2, b"")
        assert "both input and output" in done.stderr
    with rows.open("rb") as stdin, rows.open("ab") as stdout:
        code = subprocess.run(
            command("run", "--model", "fake", "-"),
            stdin=stdin,
            stdout=stdout,
            env=environment(),
            timeout=DEADLINE_S,
        ).returncode
    assert code == 2
    assert rows.read_bytes() == before


def test_an_output_that_exists_is_kept(tmp_path: Path) -> None:
    rows, out = many_rows(tmp_path / "rows.jsonl", 3), tmp_path / "out.jsonl"
    out.write_text("precious\n")
    done = run_fake(rows, "-o", out)
    assert done.code == 2 and "--overwrite" in done.stderr
    assert out.read_text() == "precious\n"
    assert run_fake(rows, "-o", out, "--overwrite").code == 0
    assert len(parse_rows(out.read_bytes())) == 3


@pytest.mark.parametrize("target", ["nowhere/out.jsonl", "."])
def test_an_output_that_cannot_be_is_refused_up_front(tmp_path: Path, target: str) -> None:
    rows = many_rows(tmp_path / "rows.jsonl", 1)
    done = deepinfer("run", "--model", "/nonexistent.gguf", rows, "-o", tmp_path / target)
    assert done.code == 2
    assert "nonexistent" not in done.stderr


def test_rows_come_out_while_the_input_is_open() -> None:
    process = start("run", "--model", "fake", "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        for i in range(3):
            process.stdin.write(b'{"id": %d, "prompt": "hello", "max_tokens": 2}\n' % i)
            process.stdin.flush()
            assert json.loads(read_line(process.stdout))["id"] == i
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def test_closed_stdin_is_an_empty_input() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command("run", "--model", "fake", "-")],
        capture_output=True,
        env=environment(),
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stdout) == (0, b"")


def test_order_completion_gives_the_same_rows(tmp_path: Path) -> None:
    rows = write_rows(
        tmp_path / "rows.jsonl",
        [
            {"id": i, "prompt": f"row {i}", "max_tokens": 1 + 60 * (i % 7 == 0), "ignore_eos": True}
            for i in range(200)
        ],
    )
    ordered = run_fake(rows).stdout.splitlines()
    free = run_fake(rows, "--order", "completion").stdout.splitlines()
    assert sorted(ordered) == sorted(free)
    assert [json.loads(line)["index"] for line in ordered] == list(range(200))


def test_the_bytes_do_not_depend_on_how_it_was_run(tmp_path: Path) -> None:
    rows = write_rows(
        tmp_path / "rows.jsonl",
        [
            {"id": i, "prompt": f"shared beginning {i % 5}", "max_tokens": 12, "n": 1 + i % 3, "logprobs": 2}
            for i in range(60)
        ],
    )
    reference = run_fake(rows).stdout
    for args in (
        ("--max-num-seqs", "1"),
        ("--threads", "3", "--prefill-chunk", "4"),
        ("--no-prefix-cache", "--max-step-tokens", "16"),
    ):
        assert run_fake(rows, *args).stdout == reference, args


def test_shards_make_up_the_whole(tmp_path: Path) -> None:
    rows = [{"prompt": f"row {i % 9}", "max_tokens": 3} for i in range(30)] + [
        {"id": "twice", "prompt": "x"}
    ] * 2
    path = write_rows(tmp_path / "rows.jsonl", rows)
    whole = run_fake(path, "--max-tokens", "3")
    parts: list[bytes] = []
    for i in range(3):
        parts += run_fake(path, "--max-tokens", "3", "--shard", f"{i}/3").stdout.splitlines()
    parts.sort(key=lambda line: json.loads(line)["index"])
    assert parts == whole.stdout.splitlines()


def test_limit(tmp_path: Path) -> None:
    done = run_fake(many_rows(tmp_path / "rows.jsonl", 30), "--limit", "4")
    assert (done.code, len(done.rows)) == (0, 4)


@pytest.mark.parametrize(("limit", "code"), [("2", 1), ("3", 3), ("20%", 1), ("40%", 3)])
def test_max_failures(tmp_path: Path, limit: str, code: int) -> None:
    rows = [{"id": i, "prompt": "x" if i % 3 else None, "max_tokens": 2} for i in range(9)]
    done = run_fake(write_rows(tmp_path / "rows.jsonl", rows), "--max-failures", limit)
    assert done.code == code, done.stderr
    assert done.rows  # what was written before is valid


def test_errors_file(tmp_path: Path) -> None:
    errors = tmp_path / "errors.jsonl"
    done = run_fake(CASES / "06_bad_middle_line.jsonl", "--errors", errors)
    assert done.code == 3
    assert [row["index"] for row in done.rows] == [0, 1, 3, 4]
    assert [row["index"] for row in parse_rows(errors.read_bytes())] == [2]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_output(tmp_path: Path, suffix: str) -> None:
    plain = run_fake(CASES / "01_plain.jsonl").stdout
    out = tmp_path / f"out.jsonl{suffix}"
    assert run_fake(CASES / "01_plain.jsonl", "-o", out).code == 0
    if suffix == ".gz":
        import gzip

        data = gzip.decompress(out.read_bytes())
    else:
        import zstandard

        data = zstandard.ZstdDecompressor().decompressobj().decompress(out.read_bytes())
    assert data == plain


def test_run_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert run_fake(CASES / "06_bad_middle_line.jsonl", "-o", out).code == 3
    about = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    rows = parse_rows(out.read_bytes())
    assert {row["settings"] for row in rows} == {about["settings_id"]}
    (attempt,) = about["attempts"]
    assert (attempt["status"], attempt["exit_code"]) == ("complete", 3)
    assert attempt["rows"] == 5
    assert about["counts"]["ok"] == 4 and about["counts"]["by_code"] == {"bad_json": 1}
    assert about["settings"]["temperature"] == 1.0
    assert about["numerics"]["build"]["version"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "out.jsonl.run.json"]


def test_timing_is_only_there_when_asked_for() -> None:
    plain = run_fake(CASES / "01_plain.jsonl").rows[0]
    timed = run_fake("--timing", CASES / "01_plain.jsonl").rows[0]
    assert "timing" not in plain and "cached_tokens" not in plain["usage"]
    assert timed["timing"]["e2e_s"] >= 0 and timed["usage"]["cached_tokens"] == 0
    assert plain["outputs"] == timed["outputs"]


@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        ("rows.parquet", b"PAR1....", "Parquet"),
        ("rows.csv", b"id,prompt\n1,hi\n", "CSV"),
        ("rows.jsonl", b"PAR1....", "Parquet"),
        ("rows.xz", b"\xfd7zXZ\x00....", "xz"),
    ],
)
def test_foreign_formats_are_refused_by_name(tmp_path: Path, name: str, data: bytes, word: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    done = run_fake(path)
    assert done.code == 2
    assert word in done.stderr and "hint:" in done.stderr


def test_foreign_formats_on_stdin(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"PAR1....")
    piped = run_fake("-", stdin=path.read_bytes())
    with path.open("rb") as stdin:
        redirected = subprocess.run(
            command("run", "--model", "fake", "-"),
            stdin=stdin,
            capture_output=True,
            env=environment(),
            timeout=DEADLINE_S,
        )
    assert piped.code == redirected.returncode == 2
    assert "Parquet" in piped.stderr and b"Parquet" in redirected.stderr


def test_a_cut_archive_on_stdin() -> None:
    done = run_fake("-", stdin=(CASES / "23_gzip_truncated.jsonl.gz").read_bytes())
    assert (done.code, len(done.rows)) == (1, 19)
    assert "ends early" in done.stderr


@pytest.mark.parametrize("mode", ["--validate", "--dry-run"])
def test_checks_never_touch_the_output(tmp_path: Path, mode: str) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious\n")
    done = run_fake(mode, CASES / "06_bad_middle_line.jsonl", "-o", out)
    assert done.code == 3 and len(done.rows) == 1
    assert out.read_text() == "precious\n" and len(list(tmp_path.iterdir())) == 1


def test_inputs_that_are_not_there(tmp_path: Path) -> None:
    assert run_fake(tmp_path / "none.jsonl").code == 2
    done = run_fake(str(tmp_path / "*.jsonl"))
    assert done.code == 2 and "no file matches" in done.stderr
    done = run_fake(tmp_path)
    assert done.code == 2 and "folder" in done.stderr


def test_a_file_size_limit_is_an_error_not_a_death(tmp_path: Path) -> None:
    rows, out = many_rows(tmp_path / "rows.jsonl", 200), tmp_path / "out.jsonl"
    want = run_fake(rows).stdout

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    process = start("run", "--model", "fake", rows, "-o", out, preexec_fn=limit_files)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert str(out).encode() in stderr and b"File too large" in stderr
    left = out.read_bytes()
    assert 10_000 < len(left) <= 20_000 and want.startswith(left) and left.endswith(b"\n")
    assert run_fake(rows, "-o", out, "--resume").code == 0
    assert out.read_bytes() == want


def test_a_run_file_that_cannot_be_written_any_more_costs_nothing(tmp_path: Path) -> None:
    rows, out = many_rows(tmp_path / "rows.jsonl", 20), tmp_path / "out.jsonl"
    run_file = tmp_path / "out.jsonl.run.json"
    process = start("run", "--model", SLOW, rows, "-o", out)
    deadline = time.monotonic() + DEADLINE_S
    while not run_file.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    run_file.unlink()
    run_file.mkdir()
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0 and b"warning: cannot write" in stderr
    assert len(parse_rows(out.read_bytes())) == 20


def test_the_same_file_under_other_names_is_refused(tmp_path: Path) -> None:
    rows = many_rows(tmp_path / "rows.jsonl", 3)
    before = rows.read_bytes()
    symlink = tmp_path / "symlink.jsonl"
    symlink.symlink_to(rows)
    with rows.open("rb") as file:
        names = (str(symlink), f"/proc/self/fd/{file.fileno()}", str(tmp_path / "." / "rows.jsonl"))
        for arguments in (*([rows, "-o", name] for name in names), [symlink, "-o", rows]):
            process = start("run", "--model", "fake", "--overwrite", *arguments, pass_fds=(file.fileno(),))
            _, stderr = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 2 and b"both input and output" in stderr, arguments
    for option in ("--errors", "--log-file", "--run-file"):
        done = run_fake(rows, "-o", tmp_path / "out.jsonl", "--overwrite", option, rows)
        assert done.code == 2, option
    assert rows.read_bytes() == before


def test_dev_stdout_is_stdout() -> None:
    plain = run_fake(CASES / "01_plain.jsonl")
    for name in ("/dev/stdout", "/proc/self/fd/1"):
        assert run_fake(CASES / "01_plain.jsonl", "-o", name).stdout == plain.stdout
