"""The commands of the how-to pages on one's own data work as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.runs import ROOT, TIMEOUT_S, environment, parse_rows, write_rows

PAGES = ROOT / "docs" / "how-to"


def run_page(name: str, folder: Path) -> int:
    tools = Path(sys.executable).parent  # where the command was installed
    env = environment({"DEEPINFER_MODEL": "fake", "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"})
    blocks = re.findall(r"^```sh\n(.*?)^```$", (PAGES / name).read_text(), re.MULTILINE | re.DOTALL)
    for block in blocks:
        done = subprocess.run(
            ["bash", "-e", "-c", block], cwd=folder, env=env, capture_output=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, block + done.stderr.decode()
    return len(blocks)


def test_going_on_after_an_interruption(tmp_path: Path) -> None:
    assert run_page("resume.md", tmp_path) == 2
    assert [row["id"] for row in parse_rows((tmp_path / "answers.jsonl").read_bytes())] == ["a", "b"]


def test_stopping_and_limiting(tmp_path: Path) -> None:
    assert run_page("stop-and-limit.md", tmp_path) == 2
    assert len(parse_rows((tmp_path / "answers.jsonl").read_bytes())) == 3


def test_making_every_text_fit(tmp_path: Path) -> None:
    assert run_page("constrain.md", tmp_path) == 3
    rows = parse_rows((tmp_path / "books.out.jsonl").read_bytes())
    for row in rows:
        assert set(row["outputs"][0]["parsed"]) == {"title", "pages"}
    assert [row["id"] for row in rows] == ["sea", "sky"]


def test_running_ones_own_data(tmp_path: Path) -> None:
    rows = [
        {"question": f"Why is the sky {color}?", "topic": "light"}
        for color in ("blue", "red", "green", "dark")
    ]
    write_rows(tmp_path / "questions.jsonl", rows)
    assert run_page("run-your-data.md", tmp_path) >= 7
    answers = parse_rows((tmp_path / "answers.jsonl").read_bytes())
    assert [row["columns"] for row in answers] == [{"topic": "light"}] * 4
    whole = parse_rows((tmp_path / "good.jsonl").read_bytes())
    parts = [json.loads(line) for i in (0, 1) for line in (tmp_path / f"part{i}.jsonl").open()]
    parts.sort(key=lambda row: row["index"])
    assert [row["outputs"] for row in parts] == [row["outputs"] for row in whole]
    (batch,) = parse_rows((tmp_path / "batch_output.jsonl").read_bytes())
    assert batch["custom_id"] == "a" and batch["response"]["status_code"] == 200
