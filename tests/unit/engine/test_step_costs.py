"""The file of step costs: found again, never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepinfer_cli import _native
from deepinfer_cli.engine import step_costs


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPINFER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _run(text: str) -> str:
    """What an engine that was given `text` has to keep after a few rows."""
    executor = _native.FakeExecutor()
    pool = _native.ThreadPool(1)
    table = _native.TokenTable([b"x"] * executor.vocab_size, [False] * executor.vocab_size)
    engine = _native.Engine(executor, pool, table, num_blocks=[256], tune_steps=True, step_costs=text)
    sampling = _native.SamplingParams(max_tokens=8, ignore_eos=True)
    for i in range(4):
        assert engine.try_submit(_native.Request(i, [1, 2, i], sampling))
    num_done = 0
    while num_done < 4:
        num_done += len(engine.poll(10, 1.0))
    engine.stop()
    return str(engine.step_costs())


def test_a_run_leaves_a_table_for_the_next() -> None:
    file = step_costs.file_for({"model": "a", "threads": 2})
    assert step_costs.read(file) == ""
    text = _run("")
    assert text.startswith("deepinfer step costs")
    step_costs.write(file, text)
    assert step_costs.read(file) == text
    assert len(_run(text).splitlines()) >= len(text.splitlines())


def test_other_circumstances_have_another_file() -> None:
    files = {step_costs.file_for({"model": m, "threads": t}) for m in "ab" for t in (1, 2)}
    assert len(files) == 4


def test_what_is_no_table_is_ignored(cache: Path) -> None:
    file = step_costs.file_for({})
    file.parent.mkdir(parents=True)
    for content in (b"", b"\xff\xfe", b"deepinfer step costs 1\nstep nan\n", bytes(1 << 20)):
        file.write_bytes(content)
        assert _run(step_costs.read(file)).startswith("deepinfer step costs")


def test_a_cache_that_cannot_be_written_is_no_failure(cache: Path) -> None:
    cache.write_bytes(b"a file where the folder should be")
    file = step_costs.file_for({})
    step_costs.write(file, "text")
    assert step_costs.read(file) == ""


def test_nothing_measured_writes_nothing(cache: Path) -> None:
    step_costs.write(step_costs.file_for({}), "")
    step_costs.write(None, "text")
    assert not cache.exists()
