"""Benchmarks on the small model: what the built-in fake model, which has no weights, cannot show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.runs import CASES, deepinfer

pytestmark = pytest.mark.model


def test_case_25_on_a_model_with_weights(small_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = deepinfer("bench", "--sweep", CASES / "25_sweep.yaml", "--model", small_model, "--save", folder)
    assert done.code == 3, done.stderr
    document = json.loads((folder / "cells.json").read_text())
    assert [c["status"] for c in document["cells"]] == ["ok", "ok", "failed"] * 2
    for cell in document["cells"]:
        if cell["status"] == "failed":
            assert "1,000,000 + 16 tokens do not fit into the context of 8,192" in cell["reason"]
            continue
        assert len(cell["repetitions"]) == 2
        lengths = cell["values"]["lengths"]
        assert lengths["input_tokens"]["p99"] == cell["load"]["input_len"]
        assert lengths["output_tokens"]["mean"] == 16 and lengths["prefix_hit_rate"] == 0
        rates = cell["values"]["throughput"]
        assert rates["peak_output_tokens_per_s"] >= rates["output_tokens_per_s"] * 0.999
        assert cell["values"]["roofline"]["ops"] > 0 and cell["values"]["roofline"]["share"] > 0
    quantisation = document["header"]["checkpoint"]["quantisation"]
    assert quantisation["Q4_1"] == 210 and document["header"]["runtime"]["file_layout"] == "gguf"
    assert (folder / "report.html").read_text().count("<svg") == 2


def test_the_same_prompts_give_the_same_answers_however_many_run_at_once(small_model: Path) -> None:
    hashes = set()
    for concurrency in ("1", "4"):
        done = deepinfer(
            "bench",
            *(
                "--model",
                small_model,
                "--concurrency",
                concurrency,
                "--input-len",
                "32",
                "--output-len",
                "16",
            ),
            *("--num-prompts", "4", "--repetitions", "1", "--format", "json"),
        )
        (cell,) = json.loads(done.stdout)["cells"]
        hashes.add(cell["output_hash"])
    assert len(hashes) == 1
