"""The loop with an engine that misbehaves: failed steps, logits that are no numbers, refused requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli import _native
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import EngineConfig, ModelConfig, OutputConfig
from deepinfer_cli.console import Console
from deepinfer_cli.engine import batch_run
from deepinfer_cli.errors import DeepInferError
from deepinfer_cli.models import fake
from tests.support.runs import parse_rows, write_rows


class FaultyModel(fake.FakeModel):
    """The fake model on an executor with faults."""

    def __init__(self, **faults: Any) -> None:
        super().__init__()
        self._faults = faults

    def make_executor(self, pool: Any) -> Any:
        return _native.FakeExecutor(fake.VOCAB_SIZE, fake.MAX_CONTEXT, 1, 16, **self._faults)


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], **faults: Any) -> int:
    monkeypatch.setattr(batch_run, "load_model", lambda config, console: FaultyModel(**faults))
    path = write_rows(tmp_path / "rows.jsonl", rows)
    config = RunConfig(
        inputs=(str(path),),
        model=ModelConfig(model="faulty"),
        engine=EngineConfig(threads=1),
        output=OutputConfig(output=str(tmp_path / "out.jsonl"), progress="none"),
    )
    return batch_run.run(config, Console())


def rows_of(tmp_path: Path) -> list[dict[str, Any]]:
    return parse_rows((tmp_path / "out.jsonl").read_bytes())


def plain(count: int) -> list[dict[str, Any]]:
    return [{"id": i, "prompt": f"row number {i}", "max_tokens": 8, "ignore_eos": True} for i in range(count)]


def test_logits_that_are_no_numbers_fail_their_row_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = plain(20)
    rows[7]["prompt"] = "a bell \x07 in the prompt"
    assert run(tmp_path, monkeypatch, rows) == 0
    healthy = rows_of(tmp_path)
    (tmp_path / "out.jsonl").unlink()
    assert run(tmp_path, monkeypatch, rows, nan_token=7) == 3
    done = rows_of(tmp_path)
    assert [row["status"] for row in done].count("error") >= 1
    assert done[7]["error"]["code"] == "engine_error"
    for before, after in zip(healthy, done, strict=True):
        assert after["status"] == "error" or after == before  # neighbours keep their bytes


def test_a_step_that_fails_ends_rows_or_the_run_but_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        code = run(tmp_path, monkeypatch, plain(100), fail_at_step=5, num_failing_steps=1)
    except DeepInferError as error:
        assert error.exit_code == 1
        done = rows_of(tmp_path)
        assert [row["index"] for row in done] == list(range(len(done)))
        about = json.loads((tmp_path / "out.jsonl.run.json").read_text())
        assert about["attempts"][-1]["status"] == "failed"
    else:
        assert code in (0, 3)
        done = rows_of(tmp_path)
        assert len(done) == 100
        for row in done:
            assert row["status"] == "ok" or row["error"]["code"] == "engine_error"


def test_an_engine_that_is_lost_is_fatal_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, count: int, timeout: float) -> Any:
        raise _native.NativeError("the loop ended", "internal")

    from deepinfer_cli.engine.native import NativeEngine

    monkeypatch.setattr(NativeEngine, "poll", broken)
    with pytest.raises(_native.NativeError):
        run(tmp_path, monkeypatch, plain(3))
    about = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    assert about["attempts"][-1]["status"] == "failed" and about["attempts"][-1]["exit_code"] == 1


def test_a_refused_request_is_an_error_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer_cli.engine.native import NativeEngine

    submit = NativeEngine.try_submit

    def picky(self: NativeEngine, request: Any) -> bool:
        if request.id == 1:
            raise _native.NativeError("not this one", "bad_request")
        return submit(self, request)

    monkeypatch.setattr(NativeEngine, "try_submit", picky)
    assert run(tmp_path, monkeypatch, plain(3)) == 3
    assert [row["status"] for row in rows_of(tmp_path)] == ["ok", "error", "ok"]
    assert rows_of(tmp_path)[1]["error"]["message"] == "not this one"


def test_a_full_queue_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer_cli.engine import native

    monkeypatch.setattr(native, "MAX_WAITING", 1)
    assert run(tmp_path, monkeypatch, plain(50)) == 0
    assert [row["index"] for row in rows_of(tmp_path)] == list(range(50))
