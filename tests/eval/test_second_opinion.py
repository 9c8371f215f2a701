"""math-verify beside our rules: it runs in its own process, never decides, and its failures are its own."""

from __future__ import annotations

import multiprocessing
import os
import time

import pytest

from deepinfer_cli.eval.scoring import second_opinion
from deepinfer_cli.eval.scoring.second_opinion import Opinion, second_opinions
from deepinfer_cli.eval.summary import _second_opinion


def fake_judge(job: tuple[str, str]) -> Opinion:
    """Stands in for the library inside the worker process."""
    text, gold = job
    if text == "hang":
        time.sleep(60)
    if text == "die":
        os._exit(9)
    return Opinion(gold in text)


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_opinion, "_judge", fake_judge)
    monkeypatch.setattr(second_opinion, "HARD_TIMEOUT_S", 3.0)
    forking = multiprocessing.get_context("fork")  # the worker then has fake_judge in its place
    monkeypatch.setattr(second_opinion.multiprocessing, "get_context", lambda _: forking)


@pytest.mark.slow
@pytest.mark.usefixtures("replaced")
def test_a_worker_that_hangs_or_dies_costs_one_answer() -> None:
    jobs = [
        ("is 7", "7"),
        ("hang", "7"),
        ("is 8", "7"),
        ("die", "7"),
        ("<think>7</think>is 9", "7"),
        ("7", "7"),
    ]
    got = second_opinions(jobs)
    assert [o.is_correct for o in got] == [True, None, False, None, False, True]
    assert got[1].error == "no opinion within 3 s"
    assert got[3].error == "its process died"


def test_disagreements_are_listed_and_decide_nothing() -> None:
    def sample(key: str, verdict: str, opinion: bool | None) -> dict[str, object]:
        second = {"by": "m", "is_correct": opinion, "error": None if opinion is not None else "e"}
        return {"key": key, "verdict": verdict, "extracted": "1", "second": second}

    samples = [
        sample("a", "correct", True),
        sample("b", "correct", False),
        sample("c", "truncated", True),
        sample("d", "wrong", None),
        {"key": "e", "verdict": "correct", "extracted": "1"},
    ]
    got = _second_opinion(samples)
    assert got is not None
    assert (got["num_asked"], got["num_failed"], got["num_disagreements"]) == (4, 1, 2)
    assert [d["key"] for d in got["disagreements"]] == ["b", "c"]
    assert _second_opinion(samples[4:]) is None
