"""`deepinfer bench` as a process, on the built-in fake model."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import CASES, Finished, command, deepinfer, environment, write_rows

SWEEP = CASES / "25_sweep.yaml"


def bench(*args: str | Path, **more: Any) -> Finished:
    return deepinfer("bench", "--model", "fake", *args, **more)


def cells_of(folder: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads((folder / "cells.json").read_text())["cells"]
    return cells


@pytest.fixture(scope="module")
def case_25(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    folder = tmp_path_factory.mktemp("bench") / "run"
    return bench("--sweep", SWEEP, "--save", folder), folder


def test_case_25_dry_run_lists_six_cells(tmp_path: Path) -> None:
    done = bench("--sweep", SWEEP, "--dry-run", cwd=tmp_path)
    lines = done.stdout.decode().splitlines()
    assert done.code == 0 and sum(line.startswith("cell ") for line in lines) == 6
    assert sum("will fail: the context is 4,096 tokens" in line for line in lines) == 2
    assert not list(tmp_path.iterdir())


def test_case_25_measures_four_cells_twice_and_keeps_the_impossible_ones(
    case_25: tuple[Finished, Path],
) -> None:
    done, folder = case_25
    assert done.code == 3, done.stderr
    cells = cells_of(folder)
    assert [c["status"] for c in cells] == ["ok", "ok", "failed"] * 2
    assert [len(c["repetitions"]) for c in cells] == [2, 2, 0] * 2
    assert all("do not fit into the context" in c["reason"] for c in cells if c["status"] == "failed")
    for cell in cells:
        if cell["status"] == "ok":
            assert cell["values"]["lengths"]["output_tokens"]["mean"] == 16
            assert cell["values"]["lengths"]["prefix_hit_rate"] == 0
            assert cell["values"]["goodput"]["good_share"] is not None
            assert cell["load"]["seed"] == 3 and cell["load"]["num_prompts"] == 8


def test_case_25_forms_agree(case_25: tuple[Finished, Path]) -> None:
    done, folder = case_25
    cells = cells_of(folder)
    rows = list(csv.DictReader(io.StringIO((folder / "cells.csv").read_text())))
    lines = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    table = (folder / "table.md").read_text()
    assert done.stdout.decode().rstrip("\n") == table.rstrip("\n")
    shown = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len(lines) == len(shown) == len(cells) == 6
    for cell, row, line, text in zip(cells, rows, lines, shown, strict=True):
        assert row["key"] == line["key"] == cell["key"]
        assert row["status"] == line["status"] == cell["status"]
        assert text.split(" | ")[0] == f"| {cell['load']['concurrency']}"
        rate = cell["values"]["throughput"]["output_tokens_per_s"]
        assert line["values"] == cell["values"]
        assert (float(row["throughput.output_tokens_per_s"]) if rate else None) == rate
        assert ("failed: " in text) == (cell["status"] == "failed")


def test_case_25_resume_does_the_failed_cells_only(case_25: tuple[Finished, Path]) -> None:
    _, folder = case_25
    before = [c["repetitions"] for c in cells_of(folder)]
    journal = (folder / "repetitions.jsonl").read_bytes()
    done = bench("--sweep", SWEEP, "--save", folder, "--resume")
    assert done.code == 3
    assert [c["repetitions"] for c in cells_of(folder)] == before
    added = (folder / "repetitions.jsonl").read_bytes()[len(journal) :]
    assert [json.loads(line)["kind"] for line in added.splitlines()] == ["run", "failure", "failure"]


def test_a_saved_run_is_never_lost_unasked(case_25: tuple[Finished, Path], tmp_path: Path) -> None:
    _, folder = case_25
    done = bench("--sweep", SWEEP, "--save", folder)
    assert done.code == 2 and "--resume goes on with it, --overwrite replaces it" in done.stderr
    (tmp_path / "other").write_text("mine")
    done = bench("--save", tmp_path, "--overwrite")
    assert done.code == 2 and "holds other files" in done.stderr
    assert bench("--save", tmp_path / "none", "--resume").code == 2
    assert bench("--resume").code == 2


def test_one_point_to_stdout_in_every_form() -> None:
    small = ("--repetitions", "1", "--input-len", "20", "--output-len", "3", "--num-prompts", "3", "-q")
    for form in ("table", "md", "csv", "json", "jsonl"):
        done = bench(*small, "--format", form, "--price-per-hour", "2", "--slo", "ttft=1000,tpot=100")
        assert done.code == 0 and done.stderr == "", done.stderr
        assert done.stdout.count(b"\x1b") == 0
        if form == "json":
            (cell,) = json.loads(done.stdout)["cells"]
            assert cell["values"]["goodput"]["cost_per_million_output_tokens"] > 0


def test_the_header_pins_what_must_be_equal() -> None:
    done = bench("--repetitions", "1", "--num-prompts", "2", "--format", "json")
    header = json.loads(done.stdout)["header"]
    from deepinfer_cli.bench.header import PINNED

    assert all(header[part] for part in PINNED)
    assert header["command"].startswith("deepinfer bench --model fake")
    assert header["decode_speed"][0]["context"] == 128 + 64


def test_rows_of_the_user(tmp_path: Path) -> None:
    rows = write_rows(
        tmp_path / "rows.jsonl",
        [{"prompt": "x" * n, "max_tokens": n, "seed": n, "temperature": 1.0} for n in (3, 5, 9)],
    )
    done = bench("--from", rows, "--concurrency", "2", "--repetitions", "2", "--format", "json")
    assert done.code == 0, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["values"]["lengths"]["input_tokens"]["mean"] == pytest.approx(17 / 3)
    assert cell["load"]["num_prompts"] == 3 and cell["load"]["input_len"] is None
    assert len(cell["load"]["rows_sha256"]) == 64
    assert len({r["correctness"]["output_hash"] for r in cell["repetitions"]}) == 1
    bad = write_rows(tmp_path / "bad.jsonl", [{"prompt": "a", "max_tokens": -1}, {"prompt": "b", "n": 2}])
    done = bench("--from", bad)
    assert done.code == 2 and "2 rows cannot run; line 1: " in done.stderr and "line 2: " in done.stderr
    assert bench("--from", rows, "--input-len", "5").code == 2


def test_rows_of_the_user_keep_their_constraints(tmp_path: Path) -> None:
    four = {"prompt": "a", "max_tokens": 9, "temperature": 1.0, "constraint": {"regex": "[0-9]{4}"}}
    done = bench(
        "--from", write_rows(tmp_path / "r.jsonl", [four] * 3), "--repetitions", "1", "--format", "json"
    )
    assert done.code == 0, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["values"]["lengths"]["output_tokens"]["mean"] == 4
    refused = bench(
        "--from", write_rows(tmp_path / "bad.jsonl", [{**four, "constraint": {"regex": r"(a)\1"}}])
    )
    assert refused.code == 2 and "constraint.regex" in refused.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--sweep", "{tmp}/none.yaml"), "cannot read"),
        (("--concurrency", "0"), "--concurrency must be an integer in [1, 65536], got 0"),
        (("--slo", "ttft"), "--slo takes LIMIT=MILLISECONDS"),
        (("--slo", "itl=5"), "unknown limit 'itl'"),
        (("--budget", "soon"), "--budget takes a time such as 90s or 8m"),
        (("--price-per-hour", "-1"), "--price-per-hour takes a number"),
        (("--accelerator", "nvidia"), "accelerator nvidia cannot be measured"),
        (("--format", "xml"), "--format is table, md, csv, json, jsonl"),
        (("sweep.yaml",), "deepinfer bench --sweep sweep.yaml"),
        (("--sweep", str(SWEEP), "--concurrency", "4"), "--concurrency: the sweep varies concurrency"),
        (("--sweep", str(SWEEP), "b.yaml"), "one sweep file at a time"),
        (("--sweep", str(SWEEP), "--resume", "--overwrite", "--save", "{tmp}/x"), "exclude each other"),
    ],
)
def test_usage_errors(args: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = bench(*(a.replace("{tmp}", str(tmp_path)) for a in args), cwd=tmp_path)
    assert done.code == 2 and done.stdout == b""
    assert says in done.stderr


@pytest.mark.slow
def test_an_interrupted_sweep_loses_nothing_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    args = (
        "bench",
        "--model",
        "fake:0.01",
        "--repetitions",
        "40",
        "--num-prompts",
        "2",
        "--output-len",
        "4",
    )
    args = (*args, "--input-len", "4", "--save", str(folder))
    process = subprocess.Popen(
        command(*args),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    )
    journal = folder / "repetitions.jsonl"
    for _ in range(3000):
        if journal.exists() and journal.read_bytes().count(b"\n") > 3:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert b"interrupted; results are in" in stderr and b"Traceback" not in stderr
    (cell,) = cells_of(folder)
    assert 3 <= len(cell["repetitions"]) < 40
    first = cell["repetitions"]
    done = deepinfer(*args, "--resume")
    assert done.code == 0, done.stderr
    (cell,) = cells_of(folder)
    assert len(cell["repetitions"]) == 40 and cell["repetitions"][: len(first)] == first
