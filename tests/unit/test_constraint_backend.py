"""The constraint engine behind its adapter: what compiles, what is refused, and what a text may be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deepinfer_cli import _native
from deepinfer_cli.constraints.backend import ConstraintBackend
from deepinfer_cli.constraints.types import ConstraintError
from deepinfer_cli.models.fake import FakeModel

MODEL = FakeModel()


def of_schema(schema: Any) -> str:
    return json.dumps({"grammars": [{"json_schema": schema}]})


@pytest.fixture(scope="module", params=["native", "python"])
def backend(request: Any) -> ConstraintBackend:
    return ConstraintBackend(MODEL, request.param)


@pytest.mark.parametrize(
    ("grammar", "code"),
    [
        ('start: "x" y', "bad_schema"),
        ("start: /[/", "bad_schema"),
        ('start: "a\0"', "bad_schema"),
        ('start: "\ud800"', "bad_schema"),
        ("{", "bad_schema"),
        (of_schema({"not": {}}), "unsupported_schema"),
        ('start: "a" start', "unsupported_schema"),  # found by the probe: no text is ever complete
    ],
)
def test_what_cannot_be_enforced_is_refused(backend: ConstraintBackend, grammar: str, code: str) -> None:
    with pytest.raises(ConstraintError) as refused:
        backend.compile(grammar)
    assert refused.value.code == code
    assert "\n" not in refused.value.message


def test_rules_may_refer_as_deep_as_they_like(backend: ConstraintBackend) -> None:
    """The engine's compiler recurses; on an ordinary stack this ends the process."""
    rules = [f"r{i}: r{i + 1}" for i in range(10_000)]
    template = backend.compile("\n".join(["start: r0", *rules, 'r10000: "c"']))
    assert template.clone().forced(MODEL.tokenizer.vocab_size) == list(b"c")


def test_a_matcher_follows_the_text(backend: ConstraintBackend) -> None:
    matcher = backend.compile('start: "ab" /[0-9]/ "cd"').clone()
    size = MODEL.tokenizer.vocab_size
    assert matcher.forced(size) == list(b"ab")
    assert not matcher.accept(ord("x"))
    assert matcher.error() == ""  # a refusal changes nothing
    assert all(matcher.accept(token) for token in b"ab")
    mask = int.from_bytes(matcher.mask(size), "little")
    assert [token for token in range(size) if mask >> token & 1] == list(b"0123456789")
    assert matcher.validate(list(b"7cx")) == 2
    assert all(matcher.accept(token) for token in b"7cd")
    assert matcher.done() and matcher.is_accepting()
    assert matcher.rollback(2) and not matcher.done() and matcher.forced(size) == list(b"cd")


def test_an_engine_enforces_it(backend: ConstraintBackend) -> None:
    tokenizer = MODEL.tokenizer
    engine = _native.Engine(
        MODEL.make_executor(None),
        _native.ThreadPool(2),
        _native.TokenTable(list(tokenizer.token_bytes), list(tokenizer.special)),
        num_blocks=[512],
        eos_token_ids=list(MODEL.eos_token_ids),
    )
    template = backend.compile(of_schema({"type": "array", "items": {"type": "integer"}, "minItems": 2}))
    for i in range(20):
        params = _native.SamplingParams(max_tokens=200)
        assert engine.try_submit(_native.Request(i, [1], params, seed=i, constraint=template))
    done: list[Any] = []
    while len(done) < 20:
        done += engine.poll(20, 5.0)
    for completion in done:
        assert completion.error == ""
        sample = completion.samples[0]
        if sample.finish_reason == "stop":
            assert all(type(item) is int for item in json.loads(sample.text))
    assert sum(completion.samples[0].finish_reason == "stop" for completion in done) > 10
