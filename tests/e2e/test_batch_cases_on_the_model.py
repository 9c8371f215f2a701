"""The batch cases once more on the small model: what a fake model cannot show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_batch_cases import TABLE, Case, case_id, check_rows
from tests.support.runs import CASES, Finished, deepinfer, write_rows
from tests.support.small_model import small_model

pytestmark = pytest.mark.model


def run_small(*args: str | Path, **kwargs: Any) -> Finished:
    return deepinfer("run", "--model", small_model(), "--set", "max_tokens_cap=32", *args, **kwargs)


@pytest.mark.parametrize("case", TABLE, ids=case_id)
def test_case(case: Case) -> None:
    short = ("--max-model-len", "128") if case.file.startswith("13") else ()  # a row asks for 2^31 tokens
    done = run_small(*short, *case.args, CASES / case.file)
    check_rows(case, done.rows)
    assert done.code == case.exit_code, done.stderr


def test_case_15_the_stop_string_is_cut_exactly(tmp_path: Path) -> None:
    text = "alpha beta gamma delta\n" * 4
    rows = [
        {"id": "free", "prompt": text, "max_tokens": 12},
        {"id": "cut", "prompt": text, "max_tokens": 12, "stop": ["beta gam"]},
        {"id": "kept", "prompt": text, "max_tokens": 12, "stop": ["beta gam"], "include_stop": True},
    ]
    done = run_small("--temperature", "0", write_rows(tmp_path / "rows.jsonl", rows))
    free, cut, kept = (row["outputs"][0] for row in done.rows)
    assert "beta gam" in free["text"]  # the model goes on repeating
    assert cut["text"] == free["text"].split("beta gam")[0]
    assert kept["text"] == cut["text"] + "beta gam"
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", "beta gam")


def test_case_17_a_whole_document_has_its_value() -> None:
    j1, j2 = run_small("--chat", CASES / "17_schema_truncated.jsonl").rows
    assert j1["error"]["code"] == "constraint_truncated"
    (output,) = j2["outputs"]
    assert output["parsed"] == json.loads(output["text"])
    assert set(output["parsed"]) == {"title", "pages", "authors"} and output["parsed"]["authors"]
    assert output["text"] == output["text"].strip()


def test_raw_prompts_get_one_hint_and_chat_none() -> None:
    raw = run_small(CASES / "02_bom.jsonl")
    assert raw.stderr.count("raw text") == 1
    chat = run_small("--chat", CASES / "02_bom.jsonl")
    assert "raw text" not in chat.stderr
    assert chat.rows[0]["usage"]["prompt_tokens"] > raw.rows[0]["usage"]["prompt_tokens"]


def test_same_bytes_in_other_company(tmp_path: Path) -> None:
    lines = (CASES / "16_n_and_seed.jsonl").read_text().splitlines()
    together = {row["id"]: row["outputs"] for row in run_small(CASES / "16_n_and_seed.jsonl").rows}
    alone = tmp_path / "alone.jsonl"
    alone.write_text(lines[2] + "\n")
    (row,) = run_small("--threads", "1", "--no-prefix-cache", alone).rows
    assert row["outputs"] == together[json.loads(lines[2])["id"]]
