"""Both ways to call the constraint engine, natively and through Python: the same matchers, the same rows."""

from __future__ import annotations

import codecs
import json
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deepinfer_cli import _native
from deepinfer_cli.constraints import backend as backend_module
from deepinfer_cli.constraints.backend import ConstraintBackend
from tests.support.constraints import (
    SIZE,
    VOCABULARY,
    ConstrainedEngine,
    of_schema,
    random_schema,
    shown,
)
from tests.support.trained_tokenizer import SPECIALS

GRAMMARS = [
    *(of_schema(random_schema(seed)) for seed in range(12)),
    "start: /[a-z]{2,8}( [a-z]+)*/",
    'start: "name: " /[A-Z][a-z]*/ ", city: " ("hello" | "world" | "東京") "."',
    'start: pair ("," pair)*\npair: /[a-z]+/ "=" /[0-9]{1,3}/',
]


@pytest.fixture(scope="module")
def backends() -> dict[str, ConstraintBackend]:
    return {road: ConstraintBackend(VOCABULARY, road) for road in ("native", "python")}


@pytest.fixture(params=["native", "python"])
def backend(request: Any, backends: dict[str, ConstraintBackend]) -> ConstraintBackend:
    return backends[request.param]


def allowed_ids(matcher: _native.ConstraintMatcher) -> list[int]:
    bits = int.from_bytes(matcher.mask(SIZE), "little")
    return [token for token in range(SIZE) if bits >> token & 1]


def walk(template: _native.ConstraintTemplate, rng: random.Random, max_tokens: int = 40) -> list[int]:
    """A random text, token by token."""
    matcher, tokens = template.clone(), []
    while not matcher.done() and len(tokens) < max_tokens:
        choices = [token for token in allowed_ids(matcher) if token not in VOCABULARY.eos_token_ids]
        if not choices:
            break
        tokens.append(rng.choice(choices))
        assert matcher.accept(tokens[-1])
    return tokens


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_both_roads_have_the_same_matchers(backends: dict[str, ConstraintBackend], grammar: str) -> None:
    rng = random.Random(grammar)
    native, python = (backends[road].compile(grammar).clone() for road in ("native", "python"))
    for token in walk(backends["native"].compile(grammar), rng):
        assert native.mask(SIZE) == python.mask(SIZE)
        assert native.forced(SIZE) == python.forced(SIZE)
        wrong = rng.randrange(SIZE)
        assert native.validate([token, wrong]) == python.validate([token, wrong]) >= 1
        assert native.accept(token) and python.accept(token)
        assert (native.done(), native.is_accepting()) == (python.done(), python.is_accepting())
    assert native.error() == python.error() == ""
    assert not native.done() or native.mask(SIZE) == python.mask(SIZE)


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_asking_and_going_back_change_nothing(backend: ConstraintBackend, grammar: str) -> None:
    """What speculation does: drafts are validated, accepted and rolled back. Against plain accepts."""
    rng = random.Random(grammar)
    template = backend.compile(grammar)
    tokens = walk(template, rng)
    driven, plain = template.clone(), template.clone()
    for i, token in enumerate(tokens):
        draft = tokens[i : i + rng.randint(0, 4)] + [rng.randrange(SIZE) for _ in range(rng.randint(0, 2))]
        num_valid = driven.validate(draft)
        taken = 0
        while taken < len(draft) and driven.accept(draft[taken]):
            taken += 1
            if rng.random() < 0.3:
                driven.mask(SIZE)
        assert taken == num_valid
        assert driven.rollback(taken)
        assert driven.mask(SIZE) == plain.mask(SIZE)
        assert driven.accept(token) and plain.accept(token)
        assert (driven.done(), driven.is_accepting()) == (plain.done(), plain.is_accepting())


STRINGS = of_schema({"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 9}})


@pytest.mark.parametrize("grammar", [*GRAMMARS, STRINGS])
def test_what_may_be_asked_is_what_the_mask_has(backends: dict[str, ConstraintBackend], grammar: str) -> None:
    template = backends["native"].compile(grammar)
    matcher, num_asked = template.clone(), 0
    for token in walk(template, random.Random(grammar), 12):
        if matcher.can_ask():
            num_asked += 1
            accepted = [t for t in range(SIZE) if matcher.validate([t]) == 1]
            assert accepted == allowed_ids(matcher)
        else:
            assert len(allowed_ids(matcher)) == 1
        assert matcher.accept(token)
    assert num_asked or grammar in GRAMMARS[:12]  # texts that are forced as a whole
    assert not backends["python"].compile(grammar).clone().can_ask()


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_forced_is_what_the_mask_leaves_no_choice_about(backend: ConstraintBackend, grammar: str) -> None:
    template = backend.compile(grammar)
    matcher, history = template.clone(), []
    for token in walk(template, random.Random(grammar)):
        forced = matcher.forced(SIZE)
        ahead = template.clone()  # proven on one that only ever accepts
        assert all(ahead.accept(before) for before in history)
        for next_token in forced:
            assert allowed_ids(ahead) == [next_token]
            assert ahead.accept(next_token)
        assert ahead.done() or len(allowed_ids(ahead)) > 1
        assert forced[:1] in ([], [token])
        assert matcher.accept(token)
        history.append(token)


def begins_a_text(token: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(token)
    except UnicodeDecodeError:
        return False
    return True


def test_masks_are_as_wide_as_the_model(backend: ConstraintBackend) -> None:
    """A model may have more ids than its tokenizer, or fewer."""
    matcher = backend.compile("start: /(.|\\n)+/").clone()
    own = int.from_bytes(matcher.mask(SIZE), "little")
    tokens = enumerate(VOCABULARY.tokenizer.token_bytes)
    assert own == sum(1 << i for i, token in tokens if i >= len(SPECIALS) and begins_a_text(token))
    assert int.from_bytes(matcher.mask(SIZE + 500), "little") == own
    assert int.from_bytes(matcher.mask(320), "little") == own & ((1 << 320) - 1)


def requests(
    backend: ConstraintBackend, indices: range, **changes: Any
) -> tuple[list[_native.Request], list[dict[str, Any]]]:
    """Each with another schema; samplings of every kind."""
    made, schemas = [], []
    for i in indices:
        rng = random.Random(i)
        schemas.append(random_schema(i + 100))
        sampling: dict[str, Any] = {
            "max_tokens": rng.choice((6, 30, 120)),
            "temperature": rng.choice((0.0, 1.0)),
        }
        if rng.random() < 0.4:
            sampling["top_logprobs"] = rng.randint(0, 2)
        if rng.random() < 0.3:
            sampling |= {"stop": rng.choice((["am"], ['":'], ["0"])), "include_stop": rng.random() < 0.5}
        if rng.random() < 0.3:
            sampling |= {"repetition_penalty": 1.3, "frequency_penalty": 0.5}
        if rng.random() < 0.3:
            sampling["min_tokens"] = rng.randint(0, sampling["max_tokens"])
        if rng.random() < 0.3:
            sampling["top_p"] = 0.8
        params = _native.SamplingParams(**sampling)
        arguments: dict[str, Any] = {
            "num_samples": rng.choice((1, 1, 3)),
            "seed": i,
            "constraint": backend.compile(of_schema(schemas[-1])),
        }
        prompt = [5, 6, 7, *rng.choices(range(10, 300), k=rng.randint(0, 30))]
        made.append(_native.Request(len(made), prompt, params, **(arguments | changes)))
    return made, schemas


def test_rows_fit_their_schemas_whoever_is_beside_them(backend: ConstraintBackend) -> None:
    """64 rows with 64 schemas at once; alone, without jumps, and under preemption they are the same."""
    work, schemas = requests(backend, range(64))
    with ConstrainedEngine() as engine:
        rows = engine.run(work)
        assert engine.num_forced > 200
    states: set[str] = set()
    for row, schema in zip(rows, schemas, strict=True):
        assert row.error == ""
        for sample in row.samples:
            assert all(len(SPECIALS) <= token < SIZE for token in sample.tokens)  # nor ids that only pad
            states.add(sample.constraint_state)
            if sample.constraint_state == "complete":
                jsonschema.validate(json.loads(sample.text), schema)
    assert states == {"complete", "incomplete"}
    expected = [shown(row) for row in rows]
    with ConstrainedEngine(jump_forward=False) as engine:
        assert [shown(row) for row in engine.run(work)] == expected
        assert engine.num_forced == 0
    with ConstrainedEngine(max_num_seqs=5, prefill_chunk=3, debug_preempt_every=3) as engine:
        assert [shown(row) for row in engine.run(work)] == expected
    with ConstrainedEngine(num_threads=1) as engine:
        alone, _ = requests(backend, range(40, 46))
        assert [shown(row) for row in engine.run(alone)] == expected[40:46]


def test_masks_that_nobody_needed_change_nothing(backends: dict[str, ConstraintBackend]) -> None:
    backend = backends["native"]
    work, _ = requests(backend, range(200, 264))
    strings = backend.compile(STRINGS)
    for i in range(64, 96):
        penalty = 1.2 if i % 3 == 0 else 1.0
        params = _native.SamplingParams(
            max_tokens=60,
            temperature=i % 4 / 2,
            min_p=0.01 * (i % 2),
            repetition_penalty=penalty,
            logit_bias=[(40 + i, 3.0)],
            top_logprobs=i % 3 - 1,
        )
        work.append(_native.Request(i, [5, 6, i], params, seed=i, constraint=strings))
    rows, spared = [], []
    for ask_above in (10**9, 512, 20, 0):
        with ConstrainedEngine(ask_above=ask_above) as engine:
            rows.append([shown(row) for row in engine.run(work)])
            spared.append(engine.num_masks_spared)
    assert rows[0] == rows[1] == rows[2] == rows[3]
    assert spared[0] == 0 < spared[2] <= spared[3]


def test_both_roads_give_the_same_rows(backends: dict[str, ConstraintBackend]) -> None:
    rows = []
    for backend in backends.values():
        with ConstrainedEngine() as engine:
            rows.append([shown(row) for row in engine.run(requests(backend, range(24))[0])])
    assert rows[0] == rows[1]


def test_the_constraint_starts_after_given_tokens(backend: ConstraintBackend) -> None:
    ends = [17, 18]  # of "thinking"
    work, _ = requests(backend, range(30), constraint_after=ends, num_samples=1)
    likely = _native.SamplingParams(max_tokens=150, logit_bias=[(17, 12.0), (18, 12.0)])
    never = _native.SamplingParams(max_tokens=20, logit_bias=[(17, -100.0)])
    template = backend.compile('start: "{" /[a-z]{1,3}/ "}"')
    for i, params in enumerate((likely, likely, never)):
        work.append(_native.Request(30 + i, [4], params, seed=i, constraint=template, constraint_after=ends))
    with ConstrainedEngine() as engine:
        rows = engine.run(work)
    with ConstrainedEngine(jump_forward=False) as engine:
        assert [shown(row) for row in engine.run(work)] == [shown(row) for row in rows]
    for row in rows[30:32]:
        sample = row.samples[0]
        start = next(i for i in range(len(sample.tokens)) if sample.tokens[i : i + 2] == ends) + 2
        text = b"".join(VOCABULARY.tokenizer.token_bytes[t] for t in sample.tokens[start:])
        assert sample.constraint_state == "complete" and text[:1] + text[-1:] == b"{}"
    assert rows[32].samples[0].constraint_state == "not_started"
    with ConstrainedEngine() as engine, pytest.raises(_native.NativeError, match="without a constraint"):
        engine.run([_native.Request(0, [4], likely, constraint_after=ends)])


def test_a_constraint_that_fails_ends_its_row_alone(backend: ConstraintBackend) -> None:
    failing = backend.compile("start: /(a{1,1000}){1,1000}/")  # too much only after a while
    work, _ = requests(backend, range(8), num_samples=1)
    params = _native.SamplingParams(
        max_tokens=400, logit_bias=[(eos, -100.0) for eos in VOCABULARY.eos_token_ids]
    )
    with ConstrainedEngine() as engine:
        expected = [shown(row) for row in engine.run(work)]
    with ConstrainedEngine() as engine:
        rows = engine.run([*work, _native.Request(8, [4], params, constraint=failing)])
    assert rows[8].error.startswith("the constraint failed: ")
    assert "too many" in rows[8].error.lower() or "limit" in rows[8].error
    assert [shown(row) for row in rows[:8]] == expected


def test_many_threads_compile_and_walk(backend: ConstraintBackend) -> None:
    """While an engine's threads use the same templates."""
    template = backend.compile(of_schema(random_schema(3)))
    expected = [walk(template, random.Random(seed)) for seed in range(6)]
    barrier = threading.Barrier(6)

    def work(seed: int) -> list[int]:
        barrier.wait()
        own = backend.compile(of_schema(random_schema(3)))
        assert walk(own, random.Random(seed)) == expected[seed]
        return walk(template, random.Random(seed))

    rows, _ = requests(backend, range(16))
    with ConstrainedEngine(num_threads=3) as engine, ThreadPoolExecutor(6) as pool:
        answers = pool.map(work, range(6))
        assert all(row.error == "" for row in engine.run(rows))
        assert list(answers) == expected


def test_a_wheel_that_does_not_fit_is_named_and_python_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Path(str(_native.__file__))  # a library, but of another kind
    monkeypatch.setattr(backend_module, "_library", lambda: other)
    taken_over = ConstraintBackend(VOCABULARY, "auto")
    assert taken_over.compile('start: "ab"').clone().forced(SIZE)
    assert taken_over.why_not_native is not None and "does not export llg_" in taken_over.why_not_native
    with pytest.raises(backend_module.ConstraintError, match="does not export llg_"):
        ConstraintBackend(VOCABULARY, "native").compile('start: "ab"')
    monkeypatch.setattr(backend_module, "_library", lambda: other.with_name("missing.so"))
    with pytest.raises(backend_module.ConstraintError, match="cannot load"):
        ConstraintBackend(VOCABULARY, "native").compile('start: "ab"')


def test_an_engine_that_still_runs_does_not_disturb_the_exit() -> None:
    """Its thread asks Python for masks, and Python is about to go."""
    script = """
from deepinfer_cli import _native
from deepinfer_cli.constraints.backend import ConstraintBackend
from tests.support.constraints import VOCABULARY, ConstrainedEngine
template = ConstraintBackend(VOCABULARY, "python").compile("start: /[a-z]+/")
params = _native.SamplingParams(max_tokens=4000, logit_bias=[(0, -50.0), (2, -50.0)])
engine = ConstrainedEngine()
for i in range(100):
    engine.submit(_native.Request(i, [4], params, constraint=template))
print("over")
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
