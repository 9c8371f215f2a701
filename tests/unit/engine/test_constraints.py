"""Constraints in the loop: compiled beside it, validated beside it, and every row still comes out once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import EngineConfig, ModelConfig, OutputConfig
from deepinfer_cli.console import Console
from deepinfer_cli.constraints import pool
from deepinfer_cli.constraints.backend import ConstraintBackend
from deepinfer_cli.constraints.cache import Compiled, ConstraintCompiler
from deepinfer_cli.constraints.types import (
    CheckSpec,
    ConstraintError,
    ConstraintOptions,
    ConstraintSpec,
    Prepared,
)
from deepinfer_cli.engine import batch_run, prepare
from deepinfer_cli.engine.constraints import ConstraintCounts, ConstraintStage
from deepinfer_cli.engine.native import NativeEngine
from deepinfer_cli.models.fake import FakeModel, load_fake
from deepinfer_cli.requests.parser import RowParser
from deepinfer_cli.requests.types import RequestRow
from tests.support.runs import parse_rows, write_rows

DIGITS = json.dumps({"grammars": [{"lark_grammar": "start: /[1-9][0-9]{2}/"}]})
NESTED = json.dumps({"grammars": [{"lark_grammar": 'start: "[" start "]" | "x"'}]})
Result = Compiled | ConstraintError


class Compiler(ConstraintCompiler):
    """Constraints named by `source`: what is compiled and checked is the test's to say."""

    def __init__(self, model: Any, make: Mapping[str, Callable[[], Prepared]]) -> None:
        super().__init__(ConstraintBackend(model), ConstraintOptions())
        self.recipes = make

    def _make(self, spec: ConstraintSpec) -> Result:
        try:
            prepared = self.recipes[spec.source.split("#")[0]]()
            assert self._backend is not None
            return Compiled(prepared, self._backend.compile(prepared.grammar))
        except ConstraintError as error:
            return error


def digits(check: CheckSpec | None = None, **kwargs: Any) -> Callable[[], Prepared]:
    return lambda: Prepared(DIGITS, check or CheckSpec("regex", "[0-9]{3}"), **kwargs)


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[dict[str, Any]],
    make: Mapping[str, Callable[[], Prepared]],
    model: Any = None,
    **settings: Any,
) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """Rows whose `metadata` names a constraint have it. (exit code, rows, run file)"""
    model = model or load_fake("fake")
    parse = RowParser.parse

    def constrained(self: RowParser, raw: Any) -> Any:
        row = parse(self, raw)
        name = json.loads(raw.data).get("metadata")
        if isinstance(row, RequestRow) and name is not None:
            return replace(row, constraint=ConstraintSpec("regex", name, field="constraint.regex"))
        return row

    monkeypatch.setattr(RowParser, "parse", constrained)
    monkeypatch.setattr(batch_run, "load_model", lambda config, console: model)
    monkeypatch.setattr(prepare, "make_compiler", lambda config, model: Compiler(model, make))
    out = tmp_path / "out.jsonl"
    config = RunConfig(
        inputs=(str(write_rows(tmp_path / "rows.jsonl", rows)),),
        model=ModelConfig(model="faulty"),
        engine=EngineConfig(threads=1),
        output=OutputConfig(output=str(out), progress="none", overwrite=True),
    ).with_values(settings, None)  # type: ignore[arg-type]
    code = batch_run.run(config, Console())
    return code, parse_rows(out.read_bytes()), json.loads(Path(f"{out}.run.json").read_text())


def row(name: str | None, number: int = 0, **fields: Any) -> dict[str, Any]:
    return {"id": number, "prompt": f"row {number}", "max_tokens": 8, "metadata": name, **fields}


def test_every_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    json_number = CheckSpec("json_schema", '{"type":"integer"}')
    never = CheckSpec("regex", "[a-z]+")
    make = {
        "fits": digits(),
        "value": digits(json_number),
        "wrong": digits(never),
        "lenient": digits(never, not_enforced=("/a/uniqueItems",)),
        "loose": digits(not_enforced=("/a/uniqueItems",)),
        "unchecked": digits(CheckSpec("regex", "[a-")),
    }

    def refused() -> Prepared:
        raise ConstraintError("unsupported_schema", "no such thing", "/items/uniqueItems")

    def broken() -> Prepared:
        raise ZeroDivisionError("a defect")

    make |= {"refused": refused, "broken": broken}
    names = ["fits", None, "value", "wrong", "lenient", "loose", "unchecked", "refused", "broken", None]
    rows = [row(name, i) for i, name in enumerate(names)]
    rows.append(row("fits", 10, max_tokens=2))
    rows.append(row("fits", 11, stop=[str(d) for d in range(10)]))
    code, got, about = run(tmp_path, monkeypatch, rows, make)
    assert code == 3
    assert [r["id"] for r in got] == list(range(12))
    codes = {
        names[i] if i < 10 else i: r["error"]["code"] for i, r in enumerate(got) if r["status"] == "error"
    }
    assert codes == {
        "wrong": "engine_error",
        "lenient": "constraint_violated",
        "unchecked": "engine_error",
        "refused": "unsupported_schema",
        "broken": "engine_error",
        10: "constraint_truncated",
        11: "constraint_truncated",
    }
    assert all("parsed" not in out for r in got for out in r["outputs"] if r["id"] != 2)
    assert got[2]["outputs"][0]["parsed"] == int(got[2]["outputs"][0]["text"])
    assert "does not match" in got[3]["error"]["message"] and got[3]["outputs"][0]["text"].isdigit()
    assert (got[4]["not_enforced"], got[5]["not_enforced"]) == (["/a/uniqueItems"],) * 2
    assert [w["code"] for w in got[5]["warnings"]] == ["schema_not_enforced"]
    assert got[6]["error"]["retryable"] is True
    assert (got[7]["outputs"], got[7]["error"]["field"]) == ([], "constraint.regex")
    assert "/items/uniqueItems: no such thing" in got[7]["error"]["message"]
    assert "ZeroDivisionError" in got[8]["error"]["message"]
    assert len(got[10]["outputs"][0]["text"]) == 2 and "2 tokens" in got[10]["error"]["message"]
    assert got[11]["outputs"][0]["text"] == "" and "stop string" in got[11]["error"]["message"]
    assert about["attempts"][-1]["constraints"] == {
        "rows": 10,
        "compiled": 7,
        "compile_cpu_s": about["attempts"][-1]["constraints"]["compile_cpu_s"],
        "truncated": 2,
        "not_applied": 0,
        "invalid": 3,
        "validation_timeouts": 0,
        "python_road": None,
    }


def test_a_check_without_end_leaves_the_row_ok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No `parsed`, a warning, and the rows behind it are checked by another process."""
    monkeypatch.setattr(pool.CheckPool.__init__, "__kwdefaults__", {"seconds": 0.2, "max_workers": None})
    long = json.dumps({"grammars": [{"lark_grammar": "start: /a{40}/"}]})
    make = {
        "endless": lambda: Prepared(long, CheckSpec("json_schema", '{"pattern":"^(a+)+$"}')),
        "endless regex": lambda: Prepared(long, CheckSpec("regex", "(a+)+b")),
        "fits": digits(),
    }
    rows = [row("endless regex", 0, max_tokens=40), row("fits", 1), row("endless", 2, max_tokens=40)]
    _, got, about = run(tmp_path, monkeypatch, rows, make)
    assert [r["status"] for r in got] == ["ok", "ok", "error"]
    assert [w["code"] for w in got[0]["warnings"]] == ["validation_timeout"]
    assert got[0]["outputs"][0]["text"] == "a" * 40
    assert got[2]["error"]["code"] == "engine_error"  # no JSON at all
    assert about["attempts"][-1]["constraints"]["validation_timeouts"] == 1
    assert about["counts"]["warnings"] == {"validation_timeout": 1}


def test_several_outputs_are_judged_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row has the error of the first faulty one; the others keep their value."""
    grammar = json.dumps({"grammars": [{"lark_grammar": "start: /[1-9]/ | /[a-z]{50}/"}]})
    make = {"one": lambda: Prepared(grammar, CheckSpec("json_schema", "{}"))}
    _, got, _ = run(tmp_path, monkeypatch, [row("one", 1, n=8, max_tokens=4, temperature=2)], make)
    outputs = got[0]["outputs"]
    faulty = [i for i, out in enumerate(outputs) if "error" in out]
    assert 0 < len(faulty) < 8
    for out in outputs:
        assert ("parsed" in out) != ("error" in out)
    assert got[0]["error"]["code"] == "constraint_truncated"
    assert got[0]["error"]["message"].startswith(f"output {faulty[0] + 1} of 8: ")
    assert got[0]["usage"]["completion_tokens"] == sum(len(out["text"]) for out in outputs)


def test_a_slow_compilation_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row waits for its constraint until all rows behind it have run; the order of the output stays."""
    release = threading.Event()
    done: list[int] = []
    collect = NativeEngine.poll

    def poll(self: NativeEngine, count: int, timeout: float) -> Any:
        found = collect(self, count, timeout)
        done.extend(finished.id for finished in found)
        if len(done) >= 20:
            release.set()
        return found

    def slow() -> Prepared:
        assert release.wait(60), "the rows behind it did not run"
        return digits()()

    monkeypatch.setattr(NativeEngine, "poll", poll)
    rows = [row("slow", 0), *(row(None, i) for i in range(1, 21))]
    code, got, _ = run(tmp_path, monkeypatch, rows, {"slow": slow})
    assert code == 0
    assert [r["id"] for r in got] == list(range(21))
    assert done[-1] == 0


def test_the_same_bytes_with_many_constraints_and_with_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = {"a": digits(), "b": lambda: Prepared(NESTED, CheckSpec("regex", r"\[*x\]*"))}
    rows = [row(f"{'ab'[i % 2]}#{i}", i, max_tokens=30) for i in range(120)]  # every one another constraint
    _, many, about = run(tmp_path, monkeypatch, rows, make)
    assert about["attempts"][-1]["constraints"]["compiled"] == 120
    alike = [{**r, "metadata": r["metadata"].split("#")[0]} for r in rows]
    _, few, about = run(tmp_path, monkeypatch, alike, make)
    assert about["attempts"][-1]["constraints"]["compiled"] == 2
    assert [r["outputs"] for r in many] == [r["outputs"] for r in few]
    (alone,) = run(tmp_path, monkeypatch, rows[77:78], make)[1]
    assert alone["outputs"] == many[77]["outputs"]


def test_waiting_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    started, release = threading.Semaphore(0), threading.Event()

    def slow() -> Prepared:
        started.release()
        release.wait(60)
        return digits()()

    compiler = Compiler(FakeModel(), {"slow": slow})
    stage = ConstraintStage(compiler, ConstraintCounts(), num_threads=64)
    count = 0
    while stage.has_room:
        assert stage.compile(count, ConstraintSpec("regex", f"slow#{count}")) is None
        count += 1
    assert count == 256
    for _ in range(4):
        assert started.acquire(timeout=60)
    assert not started.acquire(timeout=0.05)  # four threads and no more
    release.set()
    found = 0
    while found < count:
        events = stage.events(60)
        assert events
        found += len(events)
    assert (stage.num_open, stage.has_room) == (0, True)
    assert stage.compile(0, ConstraintSpec("regex", "slow#0")) is not None  # known now
    stage.close()
    assert not any(thread.is_alive() for thread in stage._threads)


def test_what_is_given_up_brings_no_events() -> None:
    release = threading.Event()

    def slow() -> Prepared:
        release.wait(60)
        return digits()()

    stage = ConstraintStage(Compiler(FakeModel(), {"slow": slow}), ConstraintCounts(), num_threads=1)
    stage.compile(0, ConstraintSpec("regex", "slow#0"))
    stage.compile(1, ConstraintSpec("regex", "slow#1"))
    stage.give_up_compiling()
    release.set()
    assert stage.events(0.2) == []
    assert stage.num_open == 0
    stage.close()


def test_one_compilation_for_rows_that_ask_at_once() -> None:
    calls = []

    def slow() -> Prepared:
        calls.append(1)
        time.sleep(0.05)
        return digits()()

    compiler = Compiler(FakeModel(), {"slow": slow})
    spec = ConstraintSpec("regex", "slow")
    found: list[Result] = []
    threads = [threading.Thread(target=lambda: found.append(compiler.get(spec))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(calls), compiler.num_made, len({id(result) for result in found})) == (1, 1, 1)


def test_the_cache_forgets_the_oldest_and_remembers_refusals() -> None:
    def refused() -> Prepared:
        raise ConstraintError("bad_schema", "no")

    compiler = Compiler(FakeModel(), {"a": digits(), "refused": refused})
    compiler._max_kept = 3
    specs = [ConstraintSpec("regex", f"a#{i}") for i in range(3)]
    for spec in specs:
        compiler.get(spec)
    compiler.get(specs[0])
    refusal = compiler.get(ConstraintSpec("regex", "refused"))
    assert isinstance(refusal, ConstraintError)
    assert compiler.peek(ConstraintSpec("regex", "refused", field="elsewhere")) is refusal
    assert [compiler.peek(spec) is not None for spec in specs] == [True, False, True]
    assert compiler.num_made == 4


def test_the_constraint_begins_behind_the_thinking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that never ends its thinking is an error; the others' answers are checked without it."""

    class Thinking(FakeModel):
        end_of_thinking = (ord("e"),)

    rows = [row("fits", i, max_tokens=400, logit_bias={str(ord("e")): 4}) for i in range(12)]
    rows += [row("fits", 12, max_tokens=3, temperature=0)]
    make = {"fits": digits()}
    _, got, _ = run(tmp_path, monkeypatch, rows, make, model=Thinking())
    ok = [r for r in got if r["status"] == "ok"]
    assert len(ok) > 5
    for r in ok:
        thinking, _, answer = r["outputs"][0]["text"].partition("e")
        assert len(answer) == 3 and answer.isdigit() and not thinking.isdigit()
    assert got[12]["error"]["code"] == "constraint_not_applied"
    assert got[12]["outputs"][0]["error"] == "constraint_not_applied"
