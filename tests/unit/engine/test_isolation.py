"""One row's trouble is its own alone: its neighbours keep their bytes, and every row gets its one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import EngineConfig, ModelConfig, OutputConfig
from deepinfer_cli.console import Console
from deepinfer_cli.engine import batch_run
from deepinfer_cli.errors import ModelError
from deepinfer_cli.models.fake import FakeRenderer, load_fake
from deepinfer_cli.results.assemble import NativeRows
from tests.support.runs import parse_rows, write_rows


def run(
    tmp_path: Path, model: str, rows: list[dict[str, Any]], **engine: Any
) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and output rows."""
    path, out = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    config = RunConfig(
        inputs=(str(path),),
        model=ModelConfig(model=model),
        engine=EngineConfig(threads=1, **engine),
        output=OutputConfig(output=str(out), overwrite=True, progress="none", quiet=True),
    )
    code = batch_run.run(config, Console())
    return code, parse_rows(out.read_bytes())


def mixed(count: int) -> list[dict[str, Any]]:
    return [
        {"id": i, "prompt": f"shared {i % 3} row {i}", "max_tokens": 1 + i % 9, "n": 1 + i % 3, "logprobs": 1}
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        ("fake:throw_rate=0.05", {}),
        ("fake:throw_rate=0.4", {"max_num_seqs": 3}),
        ("fake:nan_rate=0.01", {}),
        ("fake:poison_token=122", {}),
        ("fake:throw_rate=0.1,copy_rate=0.5,nan_rate=0.01", {"max_step_tokens": 8}),
        (
            "fake:slow_rate=0.3,slow_seconds=0.002,throw_rate=0.05",
            {"max_model_len": 64, "kv_cache_bytes": 512},
        ),
    ],
)
def test_every_row_is_its_result_or_an_error(tmp_path: Path, model: str, engine: dict[str, Any]) -> None:
    rows = mixed(60)
    rows[10]["prompt"] = "the letter z"  # token 122
    _, want = run(tmp_path, "fake", rows, **engine)
    for seed in range(3):
        code, got = run(tmp_path, f"{model},seed={seed}", rows, **engine)
        assert [row["id"] for row in got] == list(range(60))
        failed = 0
        for row, wanted in zip(got, want, strict=True):
            if row["status"] == "error":
                failed += 1
                assert row["error"]["code"] == "engine_error" and row["error"]["message"]
                assert row["error"]["retryable"] == ("not finite" not in row["error"]["message"])
            else:
                assert row == wanted
        assert code == (3 if failed else 0)
        assert failed < 60


def test_a_poisonous_row_is_the_only_one_that_fails(tmp_path: Path) -> None:
    rows = [{"id": i, "prompt": f"row {i}", "max_tokens": 1} for i in range(50)]
    for i in (7, 31):
        rows[i]["prompt"] = "a bell \x07"
    _, got = run(tmp_path, "fake:poison_token=7", rows)
    assert [row["id"] for row in got if row["status"] == "error"] == [7, 31]


def test_an_error_says_where(tmp_path: Path) -> None:
    _, got = run(tmp_path, "fake:nan_rate=1", [{"prompt": "abcd", "max_tokens": 2, "n": 2}])
    error = got[0]["error"]
    assert error["message"] == "the model gave logits that are not finite (sample 0, position 4)"
    assert error["retryable"] is False


def test_a_tokenizer_that_fails_on_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render = FakeRenderer.render

    def fails(self: FakeRenderer, prompt: Any, *more: Any, **named: Any) -> Any:
        if prompt.text == "row 2":
            raise RecursionError("too far down")
        if prompt.text == "row 3":
            raise MemoryError
        return render(self, prompt, *more, **named)

    monkeypatch.setattr(FakeRenderer, "render", fails)
    rows = [{"id": i, "prompt": f"row {i}", "max_tokens": 1} for i in range(5)]
    code, got = run(tmp_path, "fake", rows)
    assert code == 3
    assert [row["status"] for row in got] == ["ok", "ok", "error", "error", "ok"]
    assert got[2]["error"]["message"] == "preparing it failed: RecursionError: too far down"
    assert [row["error"]["retryable"] for row in got[2:4]] == [False, True]


def test_a_result_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ok = NativeRows.ok

    def fails(self: NativeRows, row: Any, finished: Any, judged: Any) -> str:
        if row.ordinal == 1:
            raise ValueError("no such token")
        return ok(self, row, finished, judged)

    monkeypatch.setattr(NativeRows, "ok", fails)
    code, got = run(tmp_path, "fake", [{"prompt": "x", "max_tokens": 1}] * 3)
    assert code == 3 and [row["status"] for row in got] == ["ok", "error", "ok"]


def test_faults_are_spelled_right() -> None:
    for name in ("fake:throw=1", "fake:throw_rate=x", "fake:-1", "fake:seed=1,,"):
        with pytest.raises(ModelError):
            load_fake(name)
