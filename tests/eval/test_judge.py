"""The judge: the form of its answer, endpoints that fail in every way, the local one, what is said of it."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.engine import batch_run
from deepinfer_cli.errors import UsageError
from deepinfer_cli.eval import verbs
from deepinfer_cli.eval.judge.endpoint import EndpointJudge
from deepinfer_cli.eval.judge.prompt import MAX_RESPONSE_CHARS, judge_messages, read_judgement
from deepinfer_cli.eval.samples import read_samples
from tests.support.scripted_run import ScriptedRun

SAMPLE = {
    "key": "q1#0",
    "messages": [{"role": "user", "content": "What is {x}?"}],
    "output": "<think>41?</think>It is 42.",
    "gold": "42",
}
YES = json.dumps({"extracted": "42", "reason": "Both are 42.", "correct": True})


def test_the_judge_sees_question_answer_and_gold_but_no_reasoning() -> None:
    (message,) = judge_messages(SAMPLE)
    text = message["content"]
    assert "What is {x}?" in text and "It is 42." in text and "Right answer:\n42" in text
    assert "41?" not in text
    (long,) = judge_messages({**SAMPLE, "output": "a" * 100_000 + "THE END"})
    assert len(long["content"]) < MAX_RESPONSE_CHARS + 2000
    assert "THE END" in long["content"]


@pytest.mark.parametrize(
    ("text", "verdict", "error"),
    [
        (YES, "correct", None),
        (f"<think>hm</think>```json\n{YES}\n```", "correct", None),
        (YES.replace("true", "false"), "wrong", None),
        ("It is right.", None, "no JSON object"),
        ('{"correct": true', None, "no JSON object"),
        ('{"correct": maybe}', None, "no valid JSON"),
        ('{"correct": true}', None, "out of schema"),
        (YES.replace("true", '"yes"'), None, "out of schema at $.correct"),
        (YES[:-1] + ', "mood": 1}', None, "out of schema"),
    ],
)
def test_only_one_form_counts(text: str, verdict: str | None, error: str | None) -> None:
    got = read_judgement(text, "j")
    assert got.verdict == verdict
    assert (got.error is None) if error is None else (got.error is not None and error in got.error)


# ---- endpoint ----------------------------------------------------------------------------------------------

Reply = Callable[[int, Mapping[str, Any]], "tuple[int, Any]"]  # (call number, body) -> (status, JSON)


class Endpoint:
    def __init__(self) -> None:
        self.reply: Reply = lambda n, body: (200, completion(YES))
        self.calls: list[Mapping[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.release = threading.Event()
        self.url = ""


def completion(text: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    state = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.calls.append(body)
            state.headers.append(dict(self.headers))
            status, value = state.reply(len(state.calls), body)
            if value == "hang":
                state.release.wait(10)
                return
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    yield state
    state.release.set()
    server.shutdown()
    server.server_close()


def test_a_judgement_from_an_endpoint(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_JUDGE_API_KEY", "sesame")
    (got,) = EndpointJudge(endpoint.url, "big", 5).judge([SAMPLE])
    assert (got.verdict, got.extracted, got.by) == ("correct", "42", "big")
    assert endpoint.calls[0]["model"] == "big"
    assert endpoint.calls[0]["temperature"] == 0
    assert endpoint.headers[0]["Authorization"] == "Bearer sesame"


@pytest.mark.parametrize(
    ("reply", "words", "num_calls"),
    [
        (lambda n, b: (500, {}), "answered with status 500", 3),
        (lambda n, b: (429, {}), "answered with status 429", 3),
        (lambda n, b: (401, {}), "answered with status 401", 1),
        (lambda n, b: (200, {"choices": []}), "not the form of a chat completion", 3),
        (lambda n, b: (200, b"<html>"), "not the form of a chat completion", 3),
        (lambda n, b: (200, completion(None)), "not the form of a chat completion", 3),
        (lambda n, b: (200, completion("Correct!")), "no JSON object", 3),
        (lambda n, b: (200, "hang"), "did not answer within 0.2 s", 3),
    ],
)
def test_what_an_endpoint_does_wrong_is_named(
    endpoint: Endpoint, reply: Reply, words: str, num_calls: int
) -> None:
    endpoint.reply = reply
    (got,) = EndpointJudge(endpoint.url, "big", 0.2).judge([SAMPLE])
    assert got.verdict is None
    assert got.error is not None and words in got.error
    assert len(endpoint.calls) == num_calls


def test_a_second_attempt_may_do(endpoint: Endpoint) -> None:
    endpoint.reply = lambda n, b: (503, {}) if n == 1 else (200, completion(YES))
    (got,) = EndpointJudge(endpoint.url, "big", 5).judge([SAMPLE])
    assert got.verdict == "correct"


def test_nobody_there_and_no_url() -> None:
    (got,) = EndpointJudge("http://127.0.0.1:9/v1", "big", 1).judge([SAMPLE])
    assert got.error is not None and "cannot be reached" in got.error
    with pytest.raises(UsageError, match="takes a URL"):
        EndpointJudge("gpt-5", "big", 1)
    described = EndpointJudge("https://me:secret@host:8/v1?k=secret", "big", 1).describe()
    assert described == {"url": "https://host:8/v1", "model": "big", "self_judged": False}


# ---- in an evaluation --------------------------------------------------------------------------------------


@pytest.fixture
def hle(tmp_path: Path) -> str:
    def record(number: int, kind: str, answer: str) -> dict[str, Any]:
        row = {"id": f"q{number}", "question": "Which?", "image": "", "answer": answer}
        return {**row, "answer_type": kind, "category": "Other"}

    records = [
        record(1, "multipleChoice", "B"),
        record(2, "exactMatch", "42"),
        record(3, "exactMatch", "43"),
    ]
    path = tmp_path / "hle.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return str(path)


def answers(row: Mapping[str, Any]) -> str:
    if "Decide whether" in row["messages"][0]["content"]:
        return YES if "\n42" in row["messages"][0]["content"] else "I cannot say."
    return "Answer: B" if row["id"].startswith("q1") else "Answer: 42"


def run_hle(
    monkeypatch: pytest.MonkeyPatch, hle: str, folder: Path, **values: Any
) -> tuple[int, dict[str, Any], str]:
    said = io.StringIO()
    console = Console(stderr=said)
    monkeypatch.setattr(console, "print_data", lambda text: None)
    monkeypatch.setattr(batch_run, "run", ScriptedRun(answers))
    settings = RunConfig().with_values({"output": str(folder)}, Origin("cli", "test"))
    options = verbs.Options(data=hle, opinion="off", **values)
    code = verbs.evaluate("hle", settings, options, console)
    return code, json.loads((folder / "summary.json").read_text()), said.getvalue()


def test_without_a_judge_only_rules_score_and_the_rest_is_not_a_zero(
    monkeypatch: pytest.MonkeyPatch, hle: str, tmp_path: Path
) -> None:
    code, summary, said = run_hle(monkeypatch, hle, tmp_path / "e")
    assert code == 0
    assert summary["score"] == 1.0
    assert summary["avg_at_n"]["num_problems"] == 1
    assert summary["verdicts"]["unjudged"] == 2
    assert "scored by rule: 1 of 1 correct" in said
    assert "scored by judge: none scored, 2 not judged (--judge URL or --judge local)" in said
    assert "1 problems)" in said and "2 not judged" in said


def test_a_judged_evaluation_and_a_judge_that_fails_once(
    monkeypatch: pytest.MonkeyPatch, hle: str, tmp_path: Path, endpoint: Endpoint
) -> None:
    def reply(n: int, body: Mapping[str, Any]) -> tuple[int, Any]:
        gold_is_42 = "Right answer:\n42" in body["messages"][0]["content"]
        return (200, completion(YES)) if gold_is_42 else (200, completion("no"))

    endpoint.reply = reply
    judge = {"judge": endpoint.url, "judge_model": "big"}
    code, summary, said = run_hle(monkeypatch, hle, tmp_path / "e", **judge)
    assert code == 3
    assert summary["judge"]["num_judged"] == 1
    assert summary["judge"]["failures"] == [{"key": "q3#0", "error": "the judge wrote no JSON object"}]
    assert summary["judge"]["self_judged"] is False
    assert "judged by big; 1 judgements failed" in said
    assert "q3#0: the judge wrote no JSON object" in said
    # Rescoring keeps the judgement that counts and asks for the other one.
    endpoint.reply = lambda n, body: (200, completion(YES.replace("true", "false")))
    before = len(endpoint.calls)
    assert verbs.rescore(tmp_path / "e", verbs.Options(opinion="off", **judge), quiet()) == 0
    assert len(endpoint.calls) == before + 1
    verdicts = {s["problem"]: s["verdict"] for s in read_samples(tmp_path / "e/samples.jsonl")}
    assert verdicts == {"q1": "correct", "q2": "correct", "q3": "wrong"}
    with pytest.raises(UsageError, match="loads no model"):
        verbs.rescore(tmp_path / "e", verbs.Options(judge="local"), quiet())


def test_judgements_are_stored_as_they_come(
    monkeypatch: pytest.MonkeyPatch, hle: str, tmp_path: Path, endpoint: Endpoint
) -> None:
    """A judge that takes the program down keeps what was judged before."""
    monkeypatch.setattr(EndpointJudge, "batch_size", 1)

    def judge(self: EndpointJudge, samples: Any) -> Any:
        if samples[0]["problem"] == "q3":
            raise KeyboardInterrupt
        return [read_judgement(YES, "big")]

    monkeypatch.setattr(EndpointJudge, "judge", judge)
    with pytest.raises(KeyboardInterrupt):
        run_hle(monkeypatch, hle, tmp_path / "e", judge=endpoint.url, judge_model="big")
    monkeypatch.undo()
    code, summary, _ = run_hle(
        monkeypatch, hle, tmp_path / "e", judge=endpoint.url, judge_model="big", resume=True
    )
    assert code == 0
    assert len(endpoint.calls) == 1
    assert summary["judge"]["num_judged"] == 2


def quiet() -> Console:
    console = Console(stderr=io.StringIO())
    console.print_data = lambda text: None  # type: ignore[method-assign]
    return console


def test_the_local_judge_is_marked_everywhere(
    monkeypatch: pytest.MonkeyPatch, hle: str, tmp_path: Path
) -> None:
    code, summary, said = run_hle(monkeypatch, hle, tmp_path / "e", judge="local")
    assert code == 3  # the judge said nothing that counts about the third
    assert summary["judge"]["self_judged"] is True
    assert "SELF-JUDGED by the evaluated model" in said
    page = (tmp_path / "e/report.html").read_text()
    assert 'class="stamp">self-judged' in page
    assert not (tmp_path / "e/judge_rows.jsonl").exists()


def test_an_endpoint_needs_a_model_name(monkeypatch: pytest.MonkeyPatch, hle: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs --judge-model"):
        run_hle(monkeypatch, hle, tmp_path / "e", judge="http://x/v1")
