"""Constraints through the real command, on the built-in fake model: rows, checks, resume, signals, pipes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.runs import command, deepinfer, environment, parse_rows, run_fake, write_rows


def schema(number: int) -> dict[str, Any]:
    """Every number another one; texts of some ten to thirty tokens."""
    return {
        "type": "object",
        "properties": {
            f"k{number}": {"type": "integer", "minimum": 0, "maximum": 10 + number},
            "s": {"type": "string", "maxLength": number % 5},
            "e": {"enum": ["a", number, None]},
        },
        "required": [f"k{number}", "s", "e"],
        "additionalProperties": False,
    }


def rows(count: int) -> list[dict[str, Any]]:
    """Every kind, each row another constraint; some too long for their tokens, some refused."""
    found: list[dict[str, Any]] = []
    for i in range(count):
        constraint: Any = (
            {"json_schema": schema(i)},
            {"regex": f"[a-f]{{{i % 7 + 1}}}x{i}"},
            {"choice": [f"yes {i}", f"no {i}"]},
            {"grammar": f'root ::= "n" [0-9] "-{i}"'},
            None,
            {"json_schema": {"type": "array", "items": {"const": i}, "uniqueItems": True}},
        )[i % 6]
        row = {"id": f"r{i}", "prompt": f"row {i}", "max_tokens": 60 if i % 5 else 3}
        found.append(row if constraint is None else {**row, "constraint": constraint})
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    folder = tmp_path_factory.mktemp("constraints")
    path = write_rows(folder / "rows.jsonl", rows(90))
    done = run_fake("-o", folder / "out.jsonl", path)
    assert done.code == 3, done.stderr
    assert re.search(r"constraints: 75 rows, 75 compiled in .* outputs truncated, 0 invalid", done.stderr)
    return path, (folder / "out.jsonl").read_bytes()


def test_every_row_fits_or_says_why(finished: tuple[Path, bytes]) -> None:
    for i, row in enumerate(parse_rows(finished[1])):
        constraint = rows(90)[i].get("constraint")
        assert row["id"] == f"r{i}"
        if i % 6 == 5:
            assert row["error"]["code"] == "unsupported_schema"
            continue
        text = row["outputs"][0]["text"]
        if row["status"] == "error":
            assert (row["error"]["code"], i % 5, len(row["outputs"])) == ("constraint_truncated", 0, 1)
        elif i % 6 == 0:
            jsonschema.validate(json.loads(text), constraint["json_schema"])
            assert row["outputs"][0]["parsed"] == json.loads(text)
        elif i % 6 == 1:
            assert re.fullmatch(constraint["regex"], text)
        elif i % 6 == 2:
            assert text in constraint["choice"]
        elif i % 6 == 3:
            assert re.fullmatch(rf"n[0-9]-{i}", text)


def test_neighbours_and_schedules_change_nothing(finished: tuple[Path, bytes], tmp_path: Path) -> None:
    lines = finished[1].splitlines(keepends=True)
    source = finished[0].read_text().splitlines(keepends=True)
    few = tmp_path / "few.jsonl"
    few.write_text("".join(reversed(source[60:80])))
    again = run_fake("--max-num-seqs", "3", "--max-step-tokens", "16", "--no-prefix-cache", few)
    texts = {json.loads(line)["id"]: json.loads(line)["outputs"] for line in lines}
    assert {row["id"]: row["outputs"] for row in again.rows} == {
        f"r{i}": texts[f"r{i}"] for i in range(60, 80)
    }


def test_resume_goes_on_to_the_same_bytes(finished: tuple[Path, bytes], tmp_path: Path) -> None:
    """From every state: truncated and refused rows stay, and deep values are read again."""
    path, whole = finished
    out = tmp_path / "out.jsonl"
    lines = whole.splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:41]) + lines[41][:30])
    done = run_fake("--resume", "-o", out, path)
    assert done.code == 3, done.stderr
    assert out.read_bytes() == whole
    assert run_fake("--resume", "-o", out, path).code == 3
    assert out.read_bytes() == whole


def test_a_value_as_deep_as_its_text_is_long(tmp_path: Path) -> None:
    """Deeper than a row that comes in may be: the output is read back by --resume all the same."""
    levels = {f"n{i}": {"type": "array", "items": {"$ref": f"#/$defs/n{i + 1}"}} for i in range(150)}
    for level in levels.values():
        level |= {"minItems": 1, "maxItems": 1}
    deep = {"$ref": "#/$defs/n0", "$defs": {**levels, "n150": {"const": 1}}}
    row = {"id": 1, "prompt": "x", "constraint": {"json_schema": deep}, "max_tokens": 1000}
    path, out = (
        write_rows(tmp_path / "rows.jsonl", [row, {"id": 2, "prompt": "y", "max_tokens": 3}]),
        tmp_path / "out",
    )
    assert run_fake("-o", out, path).code == 0
    lines = out.read_bytes().splitlines(keepends=True)
    assert lines[0].count(b"[") > 2 * 150
    out.write_bytes(lines[0])
    assert run_fake("--resume", "-o", out, path).code == 0
    assert out.read_bytes() == b"".join(lines)


def test_validate_says_what_a_run_says(finished: tuple[Path, bytes]) -> None:
    path, whole = finished
    done = deepinfer("run", "--validate", path)
    refused = [row for row in parse_rows(whole) if row["status"] == "error" and not row["outputs"]]
    assert [(r["id"], r["error"]) for r in done.rows] == [(r["id"], r["error"]) for r in refused]
    assert all("/uniqueItems" in row["error"]["message"] for row in done.rows)
    assert done.code == 3
    dry = deepinfer("run", "--dry-run", "--model", "fake", path)
    assert [(r["id"], r["error"]) for r in dry.rows] == [(r["id"], r["error"]) for r in refused]
    strict = run_fake("--strict", path)
    assert (strict.code, strict.stdout) == (2, b"")
    assert "uniqueItems" in strict.stderr


def test_the_runs_own_constraint(tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "rows.jsonl", [{"prompt": "x"}, {"prompt": "y", "constraint": {"choice": ["z"]}}]
    )
    done = run_fake("--regex", "[0-9]{4}", path)
    assert done.code == 0, done.stderr
    first, second = (row["outputs"][0]["text"] for row in done.rows)
    assert re.fullmatch("[0-9]{4}", first) and second == "z"
    other = run_fake("--regex", "[0-9]{5}", path)
    assert [row["request_hash"] for row in other.rows] != [row["request_hash"] for row in done.rows]
    for bad in ("[a-", r"(a)\1"):
        refused = run_fake("--regex", bad, path)
        assert (refused.code, refused.stdout) == (2, b""), refused.stderr
        assert "regex" in refused.stderr


def test_openai_rows(tmp_path: Path) -> None:
    schema_of = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema(3)}}
    body = {"model": "fake", "messages": [{"role": "user", "content": "x"}], "response_format": schema_of}
    lines = [
        {
            "custom_id": "whole",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {**body, "max_tokens": 99},
        },
        {
            "custom_id": "cut",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {**body, "max_tokens": 4},
        },
        {"id": "plain", "prompt": "x", "constraint": {"json_schema": {"type": "boolean"}}},
    ]
    done = run_fake("--output-format", "openai", write_rows(tmp_path / "rows.jsonl", lines))
    whole, cut, plain = done.rows
    message = whole["response"]["body"]["choices"][0]["message"]
    assert message["parsed"] == json.loads(message["content"])
    assert plain["response"]["body"]["choices"][0]["parsed"] in (True, False)
    assert (cut["response"]["status_code"], cut["error"]["code"]) == (422, "constraint_truncated")
    body = cut["response"]["body"]
    assert "choices" not in body and body["error"]["code"] == "constraint_truncated"
    (output,) = body["deepinfer"]["outputs"]
    assert (output["finish_reason"], output["error"]) == ("length", "constraint_truncated")
    assert output["text"].startswith("{") and body["usage"]["completion_tokens"] == 4


def test_errors_go_to_their_own_file(finished: tuple[Path, bytes], tmp_path: Path) -> None:
    path, whole = finished
    out, errors = tmp_path / "out.jsonl", tmp_path / "errors.jsonl"
    run_fake("-o", out, "--errors", errors, path)
    assert sorted(out.read_bytes().splitlines() + errors.read_bytes().splitlines()) == sorted(
        whole.splitlines()
    )


def workers_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            is_ours = b"constraints.worker" in (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == pid and is_ours:
            found.append(int(entry.name))
    return found


def start(tmp_path: Path, *args: str | Path, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """A run that is slow enough to be stopped, with its validating process already there."""
    many = [{"id": i, "prompt": f"{i}", "constraint": {"json_schema": schema(i % 50)}} for i in range(400)]
    path = write_rows(tmp_path / "rows.jsonl", many)
    process = subprocess.Popen(
        command("run", "--model", "fake:0.005", *args, path),
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    deadline = time.monotonic() + 60
    while not workers_of(process.pid):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    return process


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_leave_whole_rows_and_no_process(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out.jsonl"
    process = start(tmp_path, "-o", out)
    workers = workers_of(process.pid)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    wanted = -signal.SIGKILL if number == signal.SIGKILL else 128 + number
    assert process.returncode == wanted, stderr
    assert gone(workers)
    if number != signal.SIGKILL:
        assert b"Traceback" not in stderr
        parse_rows(out.read_bytes())
    done = run_fake("--resume", "-o", out, tmp_path / "rows.jsonl")
    assert done.code == 0, done.stderr
    assert [row["id"] for row in parse_rows(out.read_bytes())] == list(range(400))
    assert run_fake(tmp_path / "rows.jsonl").stdout == out.read_bytes()


@pytest.mark.slow
def test_a_closed_pipe_ends_everything(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    process = start(tmp_path, stdout=writer)
    workers = workers_of(process.pid)
    os.close(writer)
    os.close(reader)
    _, stderr = process.communicate(timeout=120)
    assert (process.returncode, b"Traceback" in stderr) == (141, False)
    assert gone(workers)


def test_an_evaluation_counts_what_was_cut_as_truncated(tmp_path: Path) -> None:
    problems = [
        {
            "id": "cut",
            "prompt": "x",
            "max_tokens": 4,
            "constraint": {"json_schema": {"const": "a" * 9}},
            "answer": 1,
        },
        {
            "id": "whole",
            "prompt": "x",
            "constraint": {"json_schema": {"const": 7}},
            "answer": 7,
            "scorer": "json",
        },
    ]
    data = write_rows(tmp_path / "problems.jsonl", [{"scorer": "json", **problem} for problem in problems])
    folder = tmp_path / "evaluation"
    deepinfer("eval", "custom", "--data", data, "--model", "fake", "-o", folder)
    samples = {s["problem"]: s for s in map(json.loads, (folder / "samples.jsonl").read_text().splitlines())}
    assert {name: s["verdict"] for name, s in samples.items()} == {"cut": "truncated", "whole": "correct"}
    assert samples["cut"]["error"]["code"] == "constraint_truncated" and samples["cut"]["output"]
