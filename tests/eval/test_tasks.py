"""Tasks: records to problems, questions without gold answers, and whatever is wrong with data, named."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.errors import InputError, UsageError
from deepinfer_cli.eval.data.files import read_records
from deepinfer_cli.eval.data.load import load_data
from deepinfer_cli.eval.protocol import Protocol
from deepinfer_cli.eval.runner import row_of
from deepinfer_cli.eval.tasks import registry
from deepinfer_cli.eval.tasks.base import Task, letter, shuffled
from deepinfer_cli.eval.tasks.registry import load_task, task_names

DATA = Path(__file__).parent / "data"
AIME = DATA / "aime_format.jsonl"
PROTOCOL = Protocol(1, 0, {}, "test")


def gpqa_record(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "Record ID": f"rec{number}",
        "Question": "Which gas do plants take in?",
        "Correct Answer": "Carbon dioxide\n",
        "Incorrect Answer 1": "Helium",
        "Incorrect Answer 2": "Argon",
        "Incorrect Answer 3": "Neon",
        "High-level domain": "Biology",
        **changes,
    }


def hle_record(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"q{number}",
        "question": "Which one?\nA. this\nB. that",
        "image": "",
        "answer": "B",
        "answer_type": "multipleChoice",
        "category": "Other",
        **changes,
    }


def build(task: str, *records: dict[str, Any], scorer: str | None = None) -> Any:
    return load_task(task)(scorer=scorer).build(records, {"name": "here", "sha256": "0"})


def test_our_aime_problems_are_what_their_checks_find() -> None:
    spec = importlib.util.spec_from_file_location("make_aime_format", DATA / "make_aime_format.py")
    assert spec is not None and spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    written = [json.loads(line) for line in AIME.read_text().splitlines()]
    assert written == maker.records()
    assert len(written) == 30
    assert all(isinstance(r["answer"], int) and 0 <= r["answer"] <= 999 for r in written)
    assert len({r["problem"] for r in written}) == 30


@pytest.mark.parametrize("task", ["aime2026", "aime2025"])
def test_aime_reads_the_published_form(task: str) -> None:
    data = load_data(load_task(task)(), str(AIME), None)
    assert len(data.problems) == 30
    assert data.warnings == ()
    assert data.problems[0].id == "1"
    assert "\\boxed{}" in data.problems[0].prompt


def test_the_smoke_set_is_sixty_problems_of_four_kinds() -> None:
    task = load_task("smoke")()
    data = load_data(task, None, None)
    assert Counter(p.category for p in data.problems) == {
        "arithmetic": 15,
        "choice": 15,
        "json": 15,
        "fact": 15,
    }
    assert data.warnings == ()


def every_problem() -> list[tuple[Task, Any]]:
    found = []
    for name, source in (("aime2026", str(AIME)), ("smoke", None)):
        task = load_task(name)()
        found += [(task, p) for p in load_data(task, source, None).problems]
    gpqa, hle = load_task("gpqa_diamond")(), load_task("hle")()
    found += [(gpqa, p) for p in gpqa.build([gpqa_record()], {}).problems]
    exact = hle_record(answer="zebra-42", answer_type="exactMatch")
    found += [(hle, p) for p in hle.build([exact], {}).problems]
    return found


def test_gold_answers_never_reach_a_row() -> None:
    for task, problem in every_problem():
        question = task.question(problem, 0, 0)
        row = row_of(question, PROTOCOL)
        assert set(row) <= {"id", "messages", "max_tokens", "chat_template_kwargs"}, row
        if problem.scorer in ("judge", "json"):
            assert json.dumps(problem.gold.answer) not in json.dumps(row)
        for word in ("gold", "schema", "scorer"):
            assert word not in row


def test_choices_are_shuffled_by_record_and_sample_and_the_permutation_leads_back() -> None:
    task = load_task("gpqa_diamond")()
    (problem,) = task.build([gpqa_record()], {}).problems
    seen = set()
    for sample in range(40):
        question = task.question(problem, sample, 7)
        assert question == task.question(problem, sample, 7)
        shown = [problem.choices[i] for i in question.permutation]
        right = "ABCD".index(question.gold.answer)
        assert shown[right] == "Carbon dioxide"
        assert f"{question.gold.answer}) Carbon dioxide" in question.messages[0]["content"]
        assert task.vote(question.gold.answer, question.permutation) == "choice 0"
        seen.add(question.permutation)
    assert len(seen) > 12
    assert task.question(problem, 0, 7).permutation != task.question(problem, 0, 8).permutation
    assert task.vote("F", (0, 1, 2, 3)) == "F"
    assert task.vote(None, (0, 1, 2, 3)) is None


def test_a_permutation_never_changes_between_versions() -> None:
    assert shuffled(4, 0, "rec1", 0) == (3, 0, 1, 2)
    assert sorted(shuffled(26, "x")) == list(range(26))
    assert letter(3) == "D"


def test_every_place_is_as_likely_for_the_right_choice() -> None:
    places = Counter(shuffled(4, 0, f"rec{i}", 0).index(0) for i in range(4000))
    assert all(900 < places[i] < 1100 for i in range(4))


def test_hle_leaves_images_out_and_splits_rule_from_judge() -> None:
    data = build(
        "hle",
        hle_record(1),
        hle_record(2, image="data:image/png;base64,AAAA"),
        hle_record(3, answer_type="exactMatch", answer="42"),
    )
    assert [(p.id, p.scorer) for p in data.problems] == [("q1", "choice"), ("q3", "judge")]
    assert data.left_out == {"has an image": 1}
    assert "2,500" in data.warnings[0]


def test_gsm8k_and_math500() -> None:
    data = build("gsm8k", {"question": "How many?", "answer": "3 + 15 = 18\n#### 18"})
    assert data.problems[0].gold.answer == "18"
    data = build(
        "math500", {"problem": "Find x.", "answer": "\\frac12", "unique_id": "t/1.json", "subject": "A"}
    )
    assert (data.problems[0].id, data.problems[0].category) == ("t/1.json", "A")


def test_custom_rows_pass_their_own_settings_and_nothing_that_is_right() -> None:
    record = {
        "id": "t41-1",
        "task": "arith",
        "messages": [{"role": "user", "content": "1+1?"}],
        "answer": "2",
        "thinking": True,
        "max_tokens": 50,
        "response_format": "json_object",
        "source": "someone's own column",
        "n": 4,
        "seed": 9,
    }
    (problem,) = build("custom", record).problems
    assert problem.scorer == "exact"
    assert problem.category == "arith+think"
    row = row_of(load_task("custom")().question(problem, 2, 0), PROTOCOL)
    assert row == {
        "id": "t41-1#2",
        "messages": record["messages"],
        "max_tokens": 50,
        "response_format": {"type": "json_object"},
        "chat_template_kwargs": {"thinking": True, "enable_thinking": True},
    }


def test_custom_scorer_from_row_then_flag_then_form() -> None:
    plain = {"prompt": "p", "answer": "7"}
    assert build("custom", plain, scorer="integer").problems[0].scorer == "integer"
    assert build("custom", {**plain, "scorer": "number"}, scorer="integer").problems[0].scorer == "number"
    schema = {"prompt": "p", "schema": {"type": "object"}}
    assert build("custom", schema).problems[0].scorer == "json"


@pytest.mark.parametrize(
    ("task", "record", "words"),
    [
        ("aime2026", {"problem": "p", "answer": 3}, "no column 'problem_idx' (columns: problem, answer)"),
        ("aime2026", {"problem_idx": 1, "problem": "p", "answer": "x+1"}, "answer is not an integer: 'x+1'"),
        ("aime2026", {"problem_idx": 1, "problem": "p", "answer": 1000}, "not from 0 to 999"),
        ("aime2026", {"problem_idx": 1, "problem": " ", "answer": 1}, "problem is not a text"),
        ("gpqa_diamond", gpqa_record(**{"Incorrect Answer 2": "Helium"}), "two of its choices are equal"),
        ("gpqa_diamond", {"Question": "q"}, "no column 'Correct Answer'"),
        ("hle", hle_record(answer_type="essay"), "neither multipleChoice nor exactMatch"),
        ("hle", hle_record(answer="B and C"), "not a letter"),
        ("gsm8k", {"question": "q", "answer": "18"}, "no '####'"),
        ("custom", {"prompt": "p"}, "no answer"),
        ("custom", {"prompt": "p", "messages": [], "answer": "1"}, "one of prompt and messages"),
        ("custom", {"prompt": "p", "answer": "1", "scorer": "vibes"}, "scorer 'vibes' is none of"),
        ("custom", {"prompt": "p", "answer": "1", "Scorer": "exact"}, "did you mean 'scorer'?"),
    ],
)
def test_a_wrong_record_is_named(task: str, record: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        build(task, record)
    assert words in caught.value.message
    assert "record 1:" in caught.value.message


def test_doubled_ids_are_named_with_both_places() -> None:
    record = {"problem_idx": 5, "problem": "p", "answer": 1}
    with pytest.raises(InputError, match=r"record 2: id '5' was already in record 1"):
        build("aime2026", record, {**record, "problem": "q"})


def test_another_number_of_records_is_a_warning() -> None:
    data = build("aime2026", {"problem_idx": 5, "problem": "p", "answer": 1})
    assert "has 1 records, not 30" in data.warnings[0]


# ---- data files --------------------------------------------------------------------------------------------


def test_all_text_formats_give_the_same_records(tmp_path: Path) -> None:
    records = [{"problem_idx": "1", "problem": 'a, "b"\nc', "answer": "7"}]
    forms = {
        "a.jsonl": json.dumps(records[0]) + "\n\n",
        "a.json": json.dumps(records),
        "b.json": json.dumps({"rows": [{"row_idx": 0, "row": records[0]}]}),
        "a.csv": '\ufeffproblem_idx,problem,answer\r\n1,"a, ""b""\nc",7\r\n',
    }
    for name, text in forms.items():
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        assert read_records(path)[0] == records, name


def test_parquet_with_and_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 and then something else")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InputError) as caught:
        read_records(path)
    assert "pyarrow is not installed" in caught.value.message
    assert caught.value.hint is not None and "deepinfer-cli[eval]" in caught.value.hint


@pytest.mark.oracle
def test_parquet_gives_the_same_records(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    records = [json.loads(line) for line in AIME.read_text().splitlines()]
    path = tmp_path / "train-00000-of-00001.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(records), path)
    assert read_records(path)[0] == records
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_records(path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', "a.jsonl:2: not JSON"),
        ("a.jsonl", "[1]\n", "a.jsonl:1: a record is a JSON object, found list"),
        ("a.json", "{", "not JSON"),
        ("a.json", '{"a": 1}', "expected a list of objects"),
        ("a.json", "[1]", "item 1 is no object"),
        ("a.csv", "a,b\n1,2,3\n", "a.csv:2: more fields"),
        ("a.csv", 'a,b\n"1,2\n', "not CSV"),
    ],
)
def test_a_broken_file_is_named_with_its_place(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_records(path)
    assert words in caught.value.message


def test_not_utf8_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": "\xff"}\n')
    with pytest.raises(InputError, match="not UTF-8 at byte 7"):
        read_records(path)
    with pytest.raises(InputError, match="cannot read"):
        read_records(tmp_path / "none.jsonl")


# ---- registry ----------------------------------------------------------------------------------------------


def test_unknown_tasks_get_a_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        load_task("aime2027")
    assert caught.value.hint == "did you mean aime2026?"
    assert load_task("GPQA-diamond").name == "gpqa_diamond"
    for name in task_names():
        assert load_task(name).name == name


class ForeignTask(Task):
    name = "foreign"
    title = "someone's task"


class Point:
    name = "foreign"

    def __init__(self, value: Any) -> None:
        self.value = value

    def load(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def test_other_packages_add_tasks_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: [Point(ForeignTask)])
    assert load_task("foreign") is ForeignTask
    assert "foreign" in task_names()
    for broken, words in ((int, "not a subclass of Task"), (RuntimeError("boom"), "RuntimeError: boom")):
        monkeypatch.setattr(registry, "entry_points", lambda group, b=broken: [Point(b)])
        with pytest.raises(UsageError, match=words):
            load_task("foreign")


def test_data_that_must_be_given_is_asked_for() -> None:
    with pytest.raises(InputError, match="needs --data FILE: a file with the columns question and answer"):
        load_data(load_task("gsm8k")(), None, None)
