"""The engine through its bindings, on the executor without a model."""

import gc
import json
import struct
import sys
import weakref

import pytest

from deepinfer_cli._native import (
    Completion,
    Engine,
    FakeExecutor,
    FaultyExecutor,
    NativeError,
    Request,
    SamplingParams,
    ThreadPool,
    TokenTable,
)

VOCAB = 64


def make_engine(num_blocks: int = 64, **settings: object) -> Engine:
    names = {"eos_token_ids": [0], "debug_checks": True} | settings
    fake = {key: names.pop(key) for key in ("fail_at_step", "num_failing_steps", "nan_token") if key in names}
    executor = FakeExecutor(VOCAB, block_tokens=4, **fake)
    table = TokenTable([bytes([97 + t % 26]) for t in range(VOCAB)], [False] * VOCAB)
    return Engine(executor, ThreadPool(2), table, num_blocks=[num_blocks], **names)


def run(engine: Engine, requests: list[Request]) -> dict[int, Completion]:
    done: dict[int, Completion] = {}
    waiting = list(requests)
    while len(done) < len(requests):
        while waiting and engine.try_submit(waiting[0]):
            waiting.pop(0)
        done.update((c.id, c) for c in engine.poll(100, 1.0))
    return done


def test_back_pressure_and_results() -> None:
    engine = make_engine(max_waiting=2, max_num_seqs=2)
    requests = [
        Request(i, [1 + i % 5, 2], SamplingParams(max_tokens=6, ignore_eos=True, temperature=0))
        for i in range(40)
    ]
    done = run(engine, requests)
    for completion in done.values():
        assert completion.error == ""
        (sample,) = completion.samples
        assert len(sample.tokens) == 6 and sample.finish_reason == "length"
        assert sample.text == "".join(chr(97 + t % 26) for t in sample.tokens)
        assert sample.tokens == done[completion.id % 5].samples[0].tokens
    engine.check_integrity()
    assert engine.stats()["num_blocks_used"] == 0


def test_scores_reach_a_callback() -> None:
    engine = make_engine()
    rows: list[tuple[int, tuple[float, ...]]] = []

    def on_logits(position: int, row: memoryview) -> None:
        assert row.format == "f"
        rows.append((position, struct.unpack(f"{len(row)}f", row.tobytes())))

    request = Request(
        7, [3, 4, 5, 6], SamplingParams(), prompt_logprobs=0, score_begin=2, score_end=4, on_logits=on_logits
    )
    completion = run(engine, [request])[7]
    assert [position for position, _ in rows] == [2, 3] and len(rows[0][1]) == VOCAB
    assert [t.token for t in completion.prompt_logprobs] == [4, 5, 6]
    assert completion.samples == []


def test_a_failing_callback_ends_its_request_alone() -> None:
    engine = make_engine()

    def broken(position: int, row: memoryview) -> None:
        raise ValueError("no room")

    done = run(
        engine,
        [
            Request(1, [3, 4], SamplingParams(), score_begin=1, score_end=2, on_logits=broken),
            Request(2, [3, 4], SamplingParams(max_tokens=3)),
        ],
    )
    assert "no room" in done[1].error and not done[1].error_retryable
    assert done[2].error == ""


class Scorer:
    """Its request refers to it, and it to the request."""

    def __init__(self) -> None:
        self.last = 0
        self.request = Request(1, [3, 4], SamplingParams(), score_begin=1, score_end=2, on_logits=self.note)

    def note(self, position: int, row: memoryview) -> None:
        self.last = position


def test_a_callback_that_refers_to_its_request_is_freed() -> None:
    engine = make_engine()
    scorer = Scorer()
    assert run(engine, [scorer.request])[1].error == ""
    assert scorer.last == 1
    gone = weakref.ref(scorer)
    del scorer
    gc.collect()
    assert gone() is None


def test_refusals_name_the_reason() -> None:
    engine = make_engine(num_blocks=4)
    for request, word in [
        (Request(1, [], SamplingParams(max_tokens=1)), "no tokens"),
        (Request(1, [VOCAB], SamplingParams(max_tokens=1)), "vocabulary"),
        (Request(1, [1], SamplingParams(max_tokens=1, top_p=0.0)), "top_p"),
        (Request(1, [1] * 10, SamplingParams(max_tokens=100)), "kv_cache_bytes"),
        (Request(1, [1] * 3000, SamplingParams(max_tokens=1)), "context limit"),
        (Request(1, [1], SamplingParams()), "nothing to do"),
    ]:
        with pytest.raises(NativeError, match=word) as caught:
            engine.try_submit(request)
        assert caught.value.args[1] == "bad_request"


def test_a_failed_step_is_tried_again() -> None:
    requests = [Request(i, [1, i], SamplingParams(max_tokens=4, ignore_eos=True)) for i in range(3)]
    want = run(make_engine(), requests)
    engine = make_engine(fail_at_step=2)
    got = run(engine, requests)
    for i in range(3):
        assert got[i].error == "" and got[i].samples[0].tokens == want[i].samples[0].tokens
    assert engine.stats()["num_failed_steps"] == 1


def test_a_request_that_fails_alone_twice_is_an_error() -> None:
    engine = make_engine(fail_at_step=0, num_failing_steps=2)
    first = run(engine, [Request(1, [1], SamplingParams(max_tokens=2))])[1]
    assert "failed at step 1" in first.error and first.error_retryable
    second = run(engine, [Request(2, [1], SamplingParams(max_tokens=2))])[2]
    assert second.error == ""


def test_a_dead_executor_is_reported_by_poll() -> None:
    engine = make_engine(fail_at_step=0, num_failing_steps=10_000)
    with pytest.raises(NativeError, match="failed at step"):
        for i in range(100):
            engine.try_submit(Request(i, [1], SamplingParams(max_tokens=2)))
            while not engine.poll(10, 1.0):
                pass


def test_an_executor_with_faults() -> None:
    inner = FakeExecutor(VOCAB, block_tokens=4)
    before = sys.getrefcount(inner)
    executor = FaultyExecutor(inner, seed=3, throw_rate=0.1, copy_rate=0.5)
    assert sys.getrefcount(inner) == before + 1  # kept by the other
    table = TokenTable([b"x"] * VOCAB, [False] * VOCAB)
    engine = Engine(executor, ThreadPool(1), table, num_blocks=[30], debug_checks=True)
    requests = [
        Request(i, [1, i], SamplingParams(max_tokens=6, ignore_eos=True), num_samples=1 + i % 3)
        for i in range(30)
    ]
    got, want = run(engine, requests), run(make_engine(), requests)
    for i in range(30):
        tokens = [s.tokens for s in got[i].samples]
        assert got[i].error or tokens == [s.tokens for s in want[i].samples]
    assert engine.stats()["num_failed_steps"] > 0
    assert json.loads(engine.describe())["core"]["requests"] == []
    engine.check_integrity()


def test_nan_logits_end_one_row() -> None:
    engine = make_engine(nan_token=9)
    done = run(
        engine,
        [Request(i, [1, 8 + i], SamplingParams(max_tokens=4, logit_bias=[(9, -50)])) for i in range(2)],
    )
    assert done[0].error == "" and "not finite" in done[1].error


def test_abort() -> None:
    engine = make_engine(num_blocks=600)
    request = Request(5, [1], SamplingParams(max_tokens=2000, ignore_eos=True), num_samples=3)
    assert engine.try_submit(request)
    engine.abort(5)
    (completion,) = engine.poll(10, 5.0)
    assert [s.finish_reason for s in completion.samples] == ["aborted"] * 3
    engine.check_integrity()
    engine.stop()
    with pytest.raises(NativeError, match="stopped"):
        engine.try_submit(request)
