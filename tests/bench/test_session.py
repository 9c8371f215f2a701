"""Repetitions under effort, budget, failure and interruption, on the built-in fake model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.bench import session as sessions
from deepinfer_cli.bench.asks import SyntheticAsks
from deepinfer_cli.bench.measure import Measurement, Stopped
from deepinfer_cli.bench.record import CellResult, Journal, as_document, num_outliers, read_journal, restore
from deepinfer_cli.bench.session import MAX_REPETITIONS, MIN_REPETITIONS, Effort, Session
from deepinfer_cli.bench.spec import Slo, Sweep
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.console import Console, Talk
from deepinfer_cli.engine.native import NativeEngine
from deepinfer_cli.models.fake import FakeModel, FakeTokenizer
from deepinfer_cli.progress import Progress

SMALL = {"input_len": 32, "output_len": 4, "num_prompts": 4}


def results_of(sweep: Sweep) -> list[CellResult]:
    cells = sweep.cells(RunConfig().engine)
    return [CellResult(cell, cell.key({})) for cell in cells]


def make(results: list[CellResult], effort: Effort, folder: Path | None = None, **more: Any) -> Session:
    values: dict[str, Any] = {
        "config": RunConfig(),
        "model_of": lambda config: FakeModel(),
        "results": results,
        "asks": SyntheticAsks(FakeTokenizer()),
        "slo": Slo(),
        "price_per_hour": None,
        "effort": effort,
        "journal": Journal(folder),
        "progress": Progress(Console(Talk(quiet=True)), None, "repetitions"),
        "is_stopped": lambda: False,
    }
    return Session(**{**values, **more})


def test_each_cell_gets_its_repetitions_and_a_cold_cache() -> None:
    results = results_of(Sweep({"concurrency": (1, 4)}, SMALL))
    make(results, Effort(3, None)).run()
    for result in results:
        assert len(result.repetitions) == 3
        for repetition in result.repetitions:
            assert repetition["lengths"]["prefix_hit_rate"] == 0.0
            assert repetition["lengths"]["input_tokens"]["p50"] == 32
            assert repetition["lengths"]["output_tokens"] == {"mean": 4.0, "p50": 4.0, "p99": 4.0}
            assert repetition["correctness"]["finish_reasons"] == {"length": 4}
        hashes = {r["correctness"]["output_hash"] for r in result.repetitions}
        assert len(hashes) == 3  # other prompts each time


def test_repeated_prompts_hit_the_cache_and_give_the_same_answers() -> None:
    results = results_of(Sweep({}, {**SMALL, "input_len": 64, "prompts": "repeated"}))
    make(results, Effort(3, None)).run()
    hits = [r["lengths"]["prefix_hit_rate"] for r in results[0].repetitions]
    assert hits[0] == 0.0 and min(hits[1:]) > 0.5
    assert len({r["correctness"]["output_hash"] for r in results[0].repetitions}) == 1


def test_concurrency_changes_no_answer() -> None:
    hashes = set()
    for concurrency in (1, 4):
        results = results_of(Sweep({}, {**SMALL, "concurrency": concurrency, "temperature": 1.0}))
        make(results, Effort(1, None)).run()
        hashes.add(results[0].repetitions[0]["correctness"]["output_hash"])
    assert len(hashes) == 1


def test_drawn_out_steps_change_no_answer() -> None:
    (cell,) = Sweep({}, SMALL).cells(RunConfig().engine)
    asks, hashes = SyntheticAsks(FakeTokenizer()), set()
    for busy_wait in (0.0, 0.5):
        engine = NativeEngine(
            FakeModel(), cell.engine, max_context=256, max_tokens_cap=16, busy_wait=busy_wait
        )
        measurement = Measurement(engine, cell, None, Slo(), None, is_stopped=lambda: False)
        values = measurement.run(asks.asks(cell, 0), asks.warmup(cell, 0))
        hashes.add(values["correctness"]["output_hash"])
        engine.close()
    assert len(hashes) == 1


def test_failed_cells_stay_with_their_reason_and_are_not_tried_again_in_the_same_run() -> None:
    swept = {"input_len": (32, 1_000_000), "speculation": ("none", "draft")}
    results = results_of(Sweep(swept, {"output_len": 4, "num_prompts": 2}))
    make(results, Effort(2, None)).run()
    assert [r.status for r in results] == ["ok", "failed", "failed", "failed"]
    assert results[1].failure == "speculation draft: this build has none"
    assert "1,000,000 + 4 tokens do not fit into the context of 4,096" in str(results[2].failure)
    assert results[1].as_json()["reason"] == results[1].failure


@pytest.mark.parametrize("name", ["json_object", "json_schema", "regex"])
def test_constrained_cells_have_exact_lengths(name: str) -> None:
    results = results_of(Sweep({"constraint": ("none", name)}, SMALL))
    make(results, Effort(1, None)).run()
    assert [r.status for r in results] == ["ok", "ok"], results[1].failure
    free, bound = (r.repetitions[0] for r in results)
    assert free["lengths"] == bound["lengths"]
    assert free["correctness"]["output_hash"] != bound["correctness"]["output_hash"]


def test_a_pool_too_small_fails_the_cell_not_the_sweep() -> None:
    results = results_of(Sweep({"kv_cache_bytes": (1, 0)}, SMALL))
    make(results, Effort(1, None)).run()
    assert [r.status for r in results] == ["failed", "ok"]
    assert "KV cache" in str(results[0].failure)


def test_effort_goes_on_while_a_cell_is_uncertain() -> None:
    (result,) = results_of(Sweep({}, SMALL))
    effort = Effort(None, None)
    steady = {"throughput": {"output_tokens_per_s": 100.0}}
    for _ in range(MIN_REPETITIONS):
        assert effort.wants(result)
        result.repetitions.append(steady)
    assert not effort.wants(result)
    result.repetitions[:] = [
        {"throughput": {"output_tokens_per_s": 10.0 * 2**i}} for i in range(MIN_REPETITIONS)
    ]
    while effort.wants(result):
        result.repetitions.append(result.repetitions[-1 - len(result.repetitions) % 3])
    assert MIN_REPETITIONS < len(result.repetitions) <= MAX_REPETITIONS
    result.failure = "no"
    assert not Effort(99, None).wants(result)


def test_a_budget_that_is_used_up_leaves_cells_out_and_says_so() -> None:
    results = results_of(Sweep({"concurrency": (1, 2)}, SMALL))
    session = make(results, Effort(None, 1e-9))
    session.run()
    assert session.is_out_of_time
    assert [r.status for r in results] == ["skipped", "skipped"]
    assert results[0].as_json()["reason"]


def test_a_first_repetition_that_would_not_fit_is_not_begun() -> None:
    results = results_of(Sweep({"input_len": (32, 1000)}, {"output_len": 4, "num_prompts": 4}))
    session = make(results, Effort(None, 100.0))
    assert session._expected(results[1]) == 0.0  # nothing is known yet
    session._costs[results[0].key] = 2.0
    assert session._expected(results[0]) == 2.0
    assert session._expected(results[1]) == pytest.approx(2.0 * 1004 / 36)


def test_rounds_go_forth_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    results = results_of(Sweep({"concurrency": (1, 2, 4)}, SMALL))
    visited = []

    def measure(self: Session, cell: Any, number: int) -> dict[str, Any]:
        visited.append((cell.index, number))
        return {"throughput": {"output_tokens_per_s": 1.0}}

    monkeypatch.setattr(sessions.Session, "_measure", measure)
    make(results, Effort(2, None)).run()
    assert visited == [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1)]


def test_costly_loads_turn_rounds_into_blocks() -> None:
    results = results_of(Sweep({"prefill_chunk": (16, 32)}, SMALL))
    session = make(results, Effort(3, 10.0))
    assert [r.cell.index for r in session._pending()] == [0, 1]
    session.load_seconds = 9.0
    session._choose_order()
    assert session.order == "blocks"
    assert [r.cell.index for r in session._pending()] == [0]


def test_an_interruption_keeps_what_was_finished_and_a_resume_does_the_rest(tmp_path: Path) -> None:
    sweep = Sweep({"concurrency": (1, 2), "input_len": (16, 5000)}, {"output_len": 2, "num_prompts": 2})
    results, calls = results_of(sweep), iter(range(10**6))
    session = make(results, Effort(3, None), tmp_path, is_stopped=lambda: next(calls) > 12)
    session.run()
    session.journal.close()
    done = sum(len(r.repetitions) for r in results)
    assert 0 < done < 6
    journal = tmp_path / "repetitions.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"kind": "repetition", "ke')  # torn

    again = results_of(sweep)
    assert restore(again, read_journal(tmp_path)) == 0
    assert sum(len(r.repetitions) for r in again) == done
    second = make(again, Effort(3, None), tmp_path)
    second.run()
    second.journal.close()
    assert [len(r.repetitions) for r in again] == [3, 0, 3, 0]
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert sum(line["kind"] == "repetition" for line in lines) == 6
    assert restore(results_of(Sweep({}, {"num_prompts": 77})), read_journal(tmp_path)) == 6


def test_repetitions_far_off_are_counted() -> None:
    assert num_outliers([100.0, 101.0, 99.0, 100.5, 60.0]) == 1
    assert num_outliers([100.0, 101.0, 99.0, 100.5, 98.0]) == 0
    assert num_outliers([100.0, 100.0, 100.0, 100.0, 100.1]) == 0
    assert num_outliers([1.0, 100.0]) == 0


def test_a_document_holds_every_cell_and_every_repetition() -> None:
    results = results_of(Sweep({"input_len": (16, 5000)}, {"output_len": 2, "num_prompts": 2}))
    make(results, Effort(2, None)).run()
    document = json.loads(json.dumps(as_document({}, results), allow_nan=False))
    ok, failed = document["cells"]
    assert len(ok["repetitions"]) == ok["statistics"]["repetitions"] == 2
    assert ok["statistics"]["low"] <= ok["statistics"]["median"] <= ok["statistics"]["high"]
    assert failed["statistics"] is None and failed["values"]["throughput"]["seconds"] is None
    assert set(ok) == set(failed)


def test_stopping_is_no_failure() -> None:
    results = results_of(Sweep({}, SMALL))
    make(results, Effort(1, None), is_stopped=lambda: True).run()
    assert results[0].status == "skipped" and issubclass(Stopped, Exception)
