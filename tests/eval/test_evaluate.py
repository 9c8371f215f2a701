"""Whole evaluations on scripted answers: scores, files, resume, rescore, exit codes, comparison."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.engine import batch_run
from deepinfer_cli.errors import ConfigError, InputError, ModelError, UsageError
from deepinfer_cli.eval import verbs
from deepinfer_cli.eval.compare import compare, comparison_lines
from deepinfer_cli.eval.samples import read_samples
from tests.support.scripted_run import ScriptedRun

AIME = str(Path(__file__).parent / "data/aime_format.jsonl")
GOLD = {str(r["problem_idx"]): r["answer"] for r in map(json.loads, Path(AIME).read_text().splitlines())}


class Talk(Console):
    """A console that keeps what was said and printed."""

    def __init__(self) -> None:
        self.said = io.StringIO()
        self.printed: list[str] = []
        super().__init__(stderr=self.said)

    def print_data(self, text: str) -> None:
        self.printed.append(text)


@pytest.fixture
def talk() -> Talk:
    return Talk()


def config(**values: Any) -> RunConfig:
    return RunConfig().with_values(values, Origin("cli", "test"))


def options(**values: Any) -> verbs.Options:
    return verbs.Options(**{"data": AIME, "opinion": "off", **values})


def right(row: Mapping[str, Any]) -> str:
    return f"<think>\\boxed{{1}}</think>So \\boxed{{{GOLD[row['id'].partition('#')[0]]}}}."


def half(row: Mapping[str, Any]) -> Any:
    """Problem 1 always right, 2 right in every second sample, 3 cut off, others wrong."""
    problem, _, sample = row["id"].partition("#")
    if problem == "1" or (problem == "2" and int(sample) % 2):
        return right(row)
    return (f"\\boxed{{{GOLD['3']}}} and then \\boxed{{", "length") if problem == "3" else "\\boxed{1000}"


def evaluate(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, folder: Path, script: Any, opts: Any = None, **values: Any
) -> tuple[int, ScriptedRun]:
    run = script if isinstance(script, ScriptedRun) else ScriptedRun(script)
    monkeypatch.setattr(batch_run, "run", run)
    settings = config(output=str(folder), **values)
    return verbs.evaluate("aime2026", settings, opts or options(), talk), run


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def test_everything_right(monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path) -> None:
    code, run = evaluate(monkeypatch, talk, tmp_path / "e", right)
    summary = summary_of(tmp_path / "e")
    assert code == 0
    assert len(run.rows) == 30 * 16
    assert summary["score"] == 1.0
    assert summary["verdicts"]["correct"] == 480
    assert summary["avg_at_n"]["method"] == "all-equal"
    assert summary["partial"] is False
    assert talk.printed == [str(tmp_path / "e")]
    assert sorted(p.name for p in (tmp_path / "e").iterdir()) == [
        "config.yaml",
        "eval.json",
        "report.html",
        "samples.jsonl",
        "summary.json",
    ]


def test_mixed_answers_are_counted_apart(monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path) -> None:
    evaluate(monkeypatch, talk, tmp_path / "e", half, n=4)
    summary = summary_of(tmp_path / "e")
    assert summary["verdicts"] == {
        "correct": 6,
        "wrong": 110,
        "no_answer": 0,
        "truncated": 4,
        "error": 0,
        "unjudged": 0,
    }
    assert summary["score"] == pytest.approx(6 / 120)
    assert summary["solved"] == {"always": 1, "sometimes": 1, "never": 28}
    assert summary["pass_at_k"] == pytest.approx({"1": 0.05, "2": (1 + 5 / 6) / 30, "4": 2 / 30})
    assert summary["majority_at_n"]["mean"] == pytest.approx(1.5 / 30)
    assert summary["truncation"]["would_help"] == "raise --max-tokens (now 32,768)"
    assert summary["avg_at_n"]["method"] == "clustered-t"
    said = talk.said.getvalue()
    assert "3.3 % of samples were cut off; raise --max-tokens" in said
    assert "avg@4 5.0 %" in said
    samples = read_samples(tmp_path / "e/samples.jsonl")
    assert [s["key"] for s in samples[:5]] == ["1#0", "1#1", "1#2", "1#3", "2#0"]
    assert samples[0]["extracted"] == str(GOLD["1"])


def test_settings_and_protocol_reach_the_run(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path
) -> None:
    _, run = evaluate(monkeypatch, talk, tmp_path / "a", right, n=1, model="x/DeepSeek-V4.1-Flash-1017")
    assert run.config is not None
    sampling = run.config.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.n) == (1.0, 0.95, 262_144, 1)
    assert run.rows[0]["chat_template_kwargs"] == {"thinking": True, "reasoning_effort": 100}
    assert run.config.output.order == "completion"
    said = talk.said.getvalue()
    assert "settings (DeepSeek-V4.1-Flash model card): temperature 1, top_p 0.95, max_tokens 262,144" in said
    changed = options(template_args={"reasoning_effort": 50})
    _, run = evaluate(
        monkeypatch,
        talk,
        tmp_path / "b",
        right,
        changed,
        n=1,
        model="deepseek-v4.1-flash",
        top_p=0.5,
        max_tokens=9,
    )
    assert run.config is not None
    assert (run.config.sampling.top_p, run.config.sampling.max_tokens) == (0.5, 9)
    assert run.rows[0]["chat_template_kwargs"]["reasoning_effort"] == 50


def test_gold_answers_are_not_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    talk = Talk()
    evaluate(monkeypatch, talk, tmp_path / "e", lambda row: "no idea", n=1)
    said = talk.said.getvalue().replace(str(tmp_path), "")  # pytest numbers its folders
    numbers = set(re.findall(r"\b[0-9]{3}\b", said))
    assert not numbers & {str(gold) for gold in GOLD.values()}
    text = (tmp_path / "e/eval.json").read_text()
    assert "answer" not in json.loads(text)["data"]


def test_interrupted_and_resumed_equals_uninterrupted(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path
) -> None:
    evaluate(monkeypatch, talk, tmp_path / "whole", half, n=4)
    broken = tmp_path / "broken"
    code, _ = evaluate(monkeypatch, talk, broken, ScriptedRun(half, stop_after=50), n=4)
    assert code == 130
    assert not (broken / "summary.json").exists()
    assert "--resume" in talk.said.getvalue()
    with (broken / "samples.jsonl").open("ab") as file:
        file.write(b'{"key": "7#1", "torn')
    code, run = evaluate(monkeypatch, talk, broken, half, options(resume=True), n=4)
    assert code == 0
    assert len(run.rows) == 70
    for name in ("samples.jsonl", "summary.json", "config.yaml", "report.html", "eval.json"):
        assert (broken / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_samples_are_mended_as_rows_are(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    first, second = (
        json.dumps({"key": f"7#{i}", "problem": "7", "verdict": "wrong", "scorer": "integer"}).encode()
        for i in (0, 1)
    )
    whole = first + b"\n" + second + b"\n"
    for torn in (
        whole + b'{"key": "7#2',
        whole + bytes(600),
        whole[:-1],
        first + b"\n" + bytes(9) + b"\n" + second,
    ):
        path.write_bytes(torn)
        assert [sample["key"] for sample in read_samples(path)] == ["7#0", "7#1"]
        assert path.read_bytes() == torn
        read_samples(path, repair=True)
        assert path.read_bytes() == whole
    path.write_bytes(first + b"\n{}\n" + second + b"\n")
    with pytest.raises(InputError, match=r"samples\.jsonl:2: not a sample"):
        read_samples(path, repair=True)


def test_resume_retries_errors_and_adds_samples(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path
) -> None:
    def failing(row: Mapping[str, Any]) -> Any:
        return RuntimeError("it broke") if row["id"] == "4#0" else right(row)

    code, _ = evaluate(monkeypatch, talk, tmp_path / "e", failing, n=1)
    assert code == 3
    assert summary_of(tmp_path / "e")["verdicts"]["error"] == 1
    code, run = evaluate(monkeypatch, talk, tmp_path / "e", right, options(resume=True), n=1)
    assert (code, [r["id"] for r in run.rows]) == (0, ["4#0"])
    assert summary_of(tmp_path / "e")["verdicts"]["error"] == 0
    code, run = evaluate(monkeypatch, talk, tmp_path / "e", right, options(resume=True), n=2)
    assert (code, len(run.rows)) == (0, 30)
    assert summary_of(tmp_path / "e")["num_samples"] == 60


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperature": 0.3}, "the sampling settings changed"),
        ({"fingerprint": "g"}, "the model changed"),
        ({"shuffle_seed": 1}, "the shuffle seed changed"),
        ({"template_args": {"a": 1}}, "the chat template's arguments changed"),
    ],
)
def test_resume_refuses_what_does_not_belong_together(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    evaluate(monkeypatch, talk, tmp_path / "e", ScriptedRun(right, stop_after=5), n=1)
    run = ScriptedRun(right, fingerprint=change.pop("fingerprint", "f"))
    own = {k: change.pop(k) for k in list(change) if k in ("shuffle_seed", "template_args")}
    with pytest.raises(ConfigError, match=words):
        evaluate(monkeypatch, talk, tmp_path / "e", run, options(resume=True, **own), n=1, **change)
    assert len(read_samples(tmp_path / "e/samples.jsonl")) == 5


def test_another_data_file_is_refused_on_resume(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path
) -> None:
    evaluate(monkeypatch, talk, tmp_path / "e", ScriptedRun(right, stop_after=5), n=1)
    other = tmp_path / "other.jsonl"
    other.write_text(Path(AIME).read_text().replace("Find", "Determine", 1))
    with pytest.raises(ConfigError, match="the data changed"):
        evaluate(monkeypatch, talk, tmp_path / "e", right, options(resume=True, data=str(other)), n=1)


def test_folders_are_not_overwritten_by_accident(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path
) -> None:
    evaluate(monkeypatch, talk, tmp_path / "e", right, n=1)
    with pytest.raises(UsageError, match="holds an evaluation already"):
        evaluate(monkeypatch, talk, tmp_path / "e", right, n=1)
    code, run = evaluate(monkeypatch, talk, tmp_path / "e", right, n=1, overwrite=True)
    assert (code, len(run.rows)) == (0, 30)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("x")
    with pytest.raises(UsageError, match=r"holds other files, thesis\.tex"):
        evaluate(monkeypatch, talk, tmp_path / "mine", right, n=1, overwrite=True)
    with pytest.raises(InputError, match="holds no evaluation"):
        evaluate(monkeypatch, talk, tmp_path / "none", right, options(resume=True), n=1)


def test_what_a_failed_start_leaves_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path
) -> None:
    def no_model(*_: object) -> int:
        raise ModelError("no such model")

    monkeypatch.setattr(batch_run, "run", no_model)
    with pytest.raises(ModelError):
        verbs.evaluate("aime2026", config(output=str(tmp_path / "e")), options(), talk)
    assert not (tmp_path / "e").exists()
    (tmp_path / "e").mkdir()
    (tmp_path / "e/rows.jsonl").write_text("left by a kill")
    code, _ = evaluate(monkeypatch, talk, tmp_path / "e", right, n=1)
    assert code == 0
    assert not (tmp_path / "e/rows.jsonl").exists()


def test_a_limit_is_stamped_partial_everywhere(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    run = ScriptedRun(right)
    monkeypatch.setattr(batch_run, "run", run)
    code = verbs.evaluate("aime2026", config(n=2, limit=3, model="a/b.gguf"), options(), talk)
    assert code == 0
    folder = tmp_path / "eval-aime2026-b-partial"
    assert not (folder / "summary.json").exists()
    summary = json.loads((folder / "summary.partial.json").read_text())
    assert summary["partial"] is True
    assert summary["num_samples"] == 6
    said = talk.said.getvalue()
    assert "PARTIAL AIME 2026: avg@2 100.0 %" in said
    assert "PARTIAL: 6 of 60 samples; not a score of the whole set" in said
    page = (folder / "report.html").read_text()
    assert 'class="stamp">partial' in page and "PARTIAL AIME 2026" in page


def test_a_missed_score_wins_over_failed_samples_and_both_are_named(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path
) -> None:
    def failing(row: Mapping[str, Any]) -> Any:
        return RuntimeError("it broke") if row["id"] == "4#0" else half(row)

    code, _ = evaluate(monkeypatch, talk, tmp_path / "e", failing, options(min_score=0.5), n=1)
    assert code == 4
    said = talk.said.getvalue()
    assert "below --min-score 50.0 % (exit code 4)" in said
    assert "1 samples or judgements failed (exit code 3)" in said
    code, _ = evaluate(monkeypatch, Talk(), tmp_path / "f", right, options(min_score=1.0), n=1)
    assert code == 0


def test_rescoring_needs_no_model(monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path) -> None:
    folder = tmp_path / "e"
    evaluate(monkeypatch, talk, folder, half, n=2)
    before = (folder / "summary.json").read_bytes()
    lines = read_samples(folder / "samples.jsonl")
    for sample in lines:
        sample.update(verdict="correct", extracted="?", span=None)
    (folder / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in lines))

    def no_model(*_: object) -> int:
        raise AssertionError("a model was asked for")

    monkeypatch.setattr(batch_run, "run", no_model)
    assert verbs.rescore(folder, options(), talk) == 0
    assert (folder / "summary.json").read_bytes() == before
    assert "57 of 60 verdicts changed" in talk.said.getvalue()


def test_comparing_two_evaluations(monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path) -> None:
    def better(row: Mapping[str, Any]) -> Any:
        return right(row) if int(row["id"].partition("#")[0]) <= 20 else "\\boxed{1000}"

    evaluate(monkeypatch, talk, tmp_path / "a", half, n=1)
    evaluate(monkeypatch, talk, tmp_path / "b", better, n=1, temperature=0.5)
    result = compare(tmp_path / "a", tmp_path / "b")
    assert (result["only_first"], result["only_second"]) == (0, 19)
    assert result["difference"] == pytest.approx(19 / 30)
    assert result["is_real"] is True
    assert result["p_value"] < 1e-4
    lines = "\n".join(comparison_lines(result))
    assert "settings differ: temperature 1.0 / 0.5" in lines
    assert "the second is better" in lines
    evaluate(monkeypatch, talk, tmp_path / "d", half, n=1, precision="fp32", limit=9)
    cautions = compare(tmp_path / "a", tmp_path / "d")["cautions"]
    assert cautions == [
        "engine settings differ: precision precise / fp32",
        "partial: --limit left problems out",
    ]
    same = compare(tmp_path / "a", tmp_path / "a")
    assert same["is_real"] is False
    assert "may be chance" in comparison_lines(same)[-1]
    evaluate(monkeypatch, talk, tmp_path / "c", half, n=4)
    mixed = compare(tmp_path / "a", tmp_path / "c")
    assert mixed["test"] == "random signs of problem differences"
    with pytest.raises(UsageError, match="two folders"):
        verbs.compare_folders(["a"], options(), talk)


def test_published_scores_stand_beside_ours(
    monkeypatch: pytest.MonkeyPatch, talk: Talk, tmp_path: Path
) -> None:
    record = {
        "Record ID": "r1",
        "Question": "q",
        "Correct Answer": "a",
        "Incorrect Answer 1": "b",
        "Incorrect Answer 2": "c",
        "Incorrect Answer 3": "d",
    }
    path = tmp_path / "g.jsonl"
    path.write_text(json.dumps(record) + "\n")
    monkeypatch.setattr(batch_run, "run", ScriptedRun(lambda row: "Answer: A"))
    verbs.evaluate("gpqa_diamond", config(output=str(tmp_path / "e")), options(data=str(path)), talk)
    said = talk.said.getvalue()
    assert "published: DeepSeek-V4.1-Flash 90.9 % (its model card" in said
    assert "1 records, not 198" in said
    summary = summary_of(tmp_path / "e")
    votes = {s["vote"] for s in read_samples(tmp_path / "e/samples.jsonl")}
    assert votes <= {f"choice {i}" for i in range(4)} and len(votes) > 1
    assert summary["avg_at_n"]["low"] is None  # one problem


@pytest.mark.parametrize(("text", "value"), [("0.8", 0.8), ("80%", 0.8), ("1", 1.0), ("0", 0.0)])
def test_min_score_spellings(text: str, value: float) -> None:
    assert verbs.share(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["80", "x", "-1", "nan", "101%"])
def test_min_score_refuses_what_is_ambiguous(text: str) -> None:
    with pytest.raises(UsageError):
        verbs.share(text)


def test_flags_that_make_no_sense(talk: Talk) -> None:
    for words, message in (
        ([], "no task given"),
        (["smoke", "hle"], "one task at a time"),
        (["compare", "a"], "two folders"),
        (["smoek"], "there is no task"),
    ):
        with pytest.raises(UsageError, match=message):
            verbs.dispatch(words, config(), options(), talk)
    with pytest.raises(UsageError):
        verbs.template_args(["thinking"])
    assert verbs.template_args(["thinking=true", "mode=fast"]) == {"thinking": True, "mode": "fast"}
    with pytest.raises(UsageError):
        verbs.opinion_mode("maybe")
    with pytest.raises(UsageError):
        verbs.seconds("--judge-timeout", "soon", 1.0)
    with pytest.raises(UsageError):
        verbs.integer("--window", "1", 512, minimum=2)
