"""On the small model: the smoke set gives every artefact, and perplexity equals transformers'."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from deepinfer_cli.eval.quality.windows import Window, built_in_texts, cut
from tests.support.cli import deepinfer
from tests.support.small_model import small_model

WINDOW = 256

pytestmark = pytest.mark.model


def test_the_smoke_set_runs_and_tells_right_from_wrong(tmp_path: Path) -> None:
    done = deepinfer("eval", "smoke", "-m", str(small_model()), "-o", "e", cwd=tmp_path)
    assert done.code == 0, done.stderr
    summary = json.loads((tmp_path / "e/summary.json").read_text())
    assert summary["num_samples"] == 60
    assert summary["verdicts"]["error"] == 0
    assert 10 <= summary["verdicts"]["correct"] <= 45
    assert all(part["num_correct"] for part in summary["by_category"].values())
    for name in ("samples.jsonl", "config.yaml", "report.html", "eval.json", "run.json"):
        assert (tmp_path / "e" / name).stat().st_size > 500


def transformers_perplexity(path: Path, windows: Sequence[Window]) -> float:
    """fp32 on the dequantised weights, over the same windows."""
    import torch

    from tests.support.hf_llama import load

    model = load(path)
    total, count = 0.0, 0
    with torch.inference_mode():
        for window in windows:
            ids = torch.tensor([window.token_ids])
            logits = model(ids).logits[0, :-1].double()
            scores = torch.log_softmax(logits, dim=-1).gather(1, ids[0, 1:, None])
            total += float(scores.sum())
            count += len(scores)
    return math.exp(-total / count)


@pytest.mark.oracle
def test_perplexity_equals_transformers_within_a_thousandth(tmp_path: Path) -> None:
    from deepinfer_cli.config.run_config import Origin, RunConfig
    from deepinfer_cli.models import load

    path = small_model()
    config = RunConfig().with_values({"model": str(path)}, Origin("cli", "test"))
    windows = cut(built_in_texts(), load(config, lambda text: None).tokenizer, WINDOW)
    want = transformers_perplexity(path, windows)
    flags = ("--precision", "fp32", "--beside", "bf16,fast", "--window", str(WINDOW), "-o", "ppl.json")
    done = deepinfer("eval", "ppl", "-m", str(path), *flags, cwd=tmp_path)
    assert done.code == 0, done.stderr
    print(f"\ntransformers fp32: {want:.4f}\n{done.text}")
    found = json.loads((tmp_path / "ppl.json").read_text())["perplexity"]
    assert found["fp32"]["all texts"]["num_tokens"] == sum(len(w.token_ids) - 1 for w in windows)
    assert found["fp32"]["all texts"]["perplexity"] == pytest.approx(want, rel=1e-3)
    for precision in ("bf16", "fast"):
        assert found[precision]["all texts"]["perplexity"] == pytest.approx(want, rel=0.05)
