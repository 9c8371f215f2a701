"""The fuzzers of loaders: every kept input and a second of new ones; and that they notice what is wrong."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from deepinfer_cli.errors import ConfigError
from tests.torture import fuzz_config, fuzz_constraints, fuzz_model_files, fuzzing

TARGETS = {**fuzz_config.TARGETS, **fuzz_model_files.TARGETS, **fuzz_constraints.TARGETS}


@pytest.mark.parametrize("name", TARGETS)
def test_a_loader_takes_or_refuses_whatever_there_is(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fuzzing, "FOUND", tmp_path)
    monkeypatch.setattr(fuzzing, "_BATCH", 20)
    count, findings = fuzzing.fuzz(
        name, *TARGETS[name], seconds=0.2 if name in fuzz_constraints.TARGETS else 1.0, seed=7
    )
    assert not findings
    assert count >= 20


def _bad(data: bytes) -> None:
    kind = data[:1]
    if kind == b"t":
        raise KeyError("a traceback")
    if kind == b"l":
        raise ConfigError("x" * 5000)
    if kind == b"n":
        raise ConfigError("two\nlines")
    if kind == b"e":
        raise ConfigError("refused, with another exit code", exit_code=1)
    if kind == b"d":
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"t", "KeyError"), (b"l", "5000 characters"), (b"n", "lines"), (b"e", "exit code 1"), (b"d", "status")],
)
def test_what_a_user_must_not_see_is_a_finding(data: bytes, said: str) -> None:
    assert fuzzing.run_batch(_bad, [b"", data, b""]) is not None
    number, what = fuzzing.run_batch(_bad, [b"", data, b""]) or (-1, "")
    assert number == 1 and said in what
    assert fuzzing.run_batch(_bad, [b"", b"x"]) is None


def test_findings_are_kept_and_the_same_seed_makes_the_same_inputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fuzzing, "FOUND", tmp_path)
    _, findings = fuzzing.fuzz("none", _bad, lambda rng: rng.choice([b"a", b"t"]), seconds=0.05, seed=1)
    assert findings and {p.read_bytes() for p in (tmp_path / "none").iterdir()} == {b"t"}
    for _, make in TARGETS.values():
        assert make(random.Random(3)) == make(random.Random(3))
