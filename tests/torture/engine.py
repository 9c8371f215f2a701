"""Executors that fail, return nonsense, dawdle and run out of blocks, many engines from many seeds.

Each seed makes an engine of random sizes around the built-in fake model with random faults, and submits
random requests. Every request has to come back once, as a result or an error; every result has to be the one
that an undisturbed engine gives; blocks are recounted at every step and all free at the end.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepinfer_cli import _native
from tests.torture.jobs import Job, Scale, Scenario, Space
from tests.torture.record import Tally
from tests.torture.workload import SHAPES, Place, fake_work

ENGINES, RUNS = "executor faults, one engine a seed", "executor faults in whole runs"
NUM_ROWS = 600
_VOCAB, _EOS, _CONTEXT = 48, 0, 96
_PATIENCE_S = 60.0  # without any completion: a hang


@dataclass(frozen=True)
class Plan:
    """What one seed comes to."""

    block_tokens: int
    num_blocks: int
    faults: dict[str, Any]
    settings: dict[str, Any]
    requests: tuple[dict[str, Any], ...]


def plan(rng: random.Random) -> Plan:
    block_tokens = rng.choice((1, 2, 4, 16))
    requests = tuple(_request(rng, number) for number in range(rng.randint(1, 40)))
    largest = max(_tokens_of(request) for request in requests)
    faults: dict[str, Any] = {"seed": rng.randrange(1 << 31)}
    for key, rates in (
        ("throw_rate", (0.01, 0.1, 0.4)),
        ("nan_rate", (0.01, 0.1)),
        ("copy_rate", (0.1, 0.5)),
    ):
        if rng.random() < 0.5:
            faults[key] = rng.choice(rates)
    if rng.random() < 0.2:
        faults["poison_token"] = rng.randrange(_VOCAB)
    if rng.random() < 0.2:
        faults |= {"slow_rate": 0.2, "slow_seconds": 0.0005}
    settings = {
        "max_num_seqs": rng.choice((1, 4, 16, 64)),
        "max_step_tokens": rng.choice((8, 32, 256)),
        "prefill_chunk": rng.choice((4, 16, 128)),
        "prefix_cache": rng.random() < 0.7,
        "debug_preempt_every": rng.choice((0, 0, 3, 10)),
        "max_waiting": rng.choice((1, 8, 256)),
    }
    # From just enough for the largest request to plenty.
    num_blocks = -(-largest // block_tokens) + rng.choice((1, 4, 40, 1000))
    return Plan(block_tokens, num_blocks, faults, settings, requests)


def _request(rng: random.Random, number: int) -> dict[str, Any]:
    prompt = [1 + (i * 7) % (_VOCAB - 1) for i in range(20)] if rng.random() < 0.3 else []
    prompt += [rng.randrange(1, _VOCAB) for _ in range(rng.randint(1, 20))]
    return {
        "id": number,
        "prompt": prompt,
        "num_samples": rng.choice((1, 1, 1, 2, 4)),
        "seed": rng.randrange(1 << 31),
        "max_tokens": rng.randint(1, 30),
        "temperature": rng.choice((0.0, 1.0)),
        "stop": rng.choice(([], [], ["ab", "q"])),
        "top_logprobs": rng.choice((-1, -1, 2)),
    }


def _tokens_of(request: dict[str, Any]) -> int:
    return request["num_samples"] * (len(request["prompt"]) + request["max_tokens"] + 16)


def _engine(executor: Any, num_blocks: int, settings: dict[str, Any]) -> Any:
    table = _native.TokenTable([bytes([97 + token % 26]) for token in range(_VOCAB)], [False] * _VOCAB)
    return _native.Engine(
        executor,
        _native.ThreadPool(1),
        table,
        num_blocks=[num_blocks],
        max_context=_CONTEXT,
        eos_token_ids=[_EOS],
        debug_checks=True,
        **settings,
    )


def drive(engine: Any, requests: Sequence[dict[str, Any]], tally: Tally, what: str) -> dict[int, Any]:
    """Completions by id."""
    done: dict[int, Any] = {}
    waiting = [_native_request(request) for request in reversed(requests)]
    while len(done) < len(requests):
        while waiting and engine.try_submit(waiting[-1]):
            waiting.pop()
        completions = engine.poll(64, _PATIENCE_S)
        if not completions:
            tally.failures.append(
                f"{what}: hangs with {len(done)} of {len(requests)} done: {engine.describe()}"
            )
            return done
        for completion in completions:
            tally.duplicated += completion.id in done
            done[completion.id] = completion
    engine.check_integrity()
    used = engine.stats()["num_blocks_used"]
    if used:
        tally.failures.append(f"{what}: {used} blocks are in use after the last request")
    tally.duplicated += len(engine.poll(64, 0.0))
    return done


def _native_request(request: dict[str, Any]) -> Any:
    sampling = {key: request[key] for key in ("max_tokens", "temperature", "stop", "top_logprobs")}
    return _native.Request(
        request["id"],
        request["prompt"],
        _native.SamplingParams(**sampling),
        num_samples=request["num_samples"],
        seed=request["seed"],
    )


def _result(completion: Any) -> Any:
    return [(sample.tokens, sample.text, sample.finish_reason) for sample in completion.samples]


def _is_error(completion: Any) -> bool:
    return bool(completion.error) or any(s.finish_reason == "error" for s in completion.samples)


def torment(seed: str, tally: Tally, what: str) -> None:
    """One engine."""
    made = plan(random.Random(seed))
    fake = {"vocab_size": _VOCAB, "max_positions": _CONTEXT, "block_tokens": made.block_tokens}
    executor = _native.FaultyExecutor(_native.FakeExecutor(**fake), **made.faults)
    engine = _engine(executor, made.num_blocks, made.settings)
    try:
        done = drive(engine, made.requests, tally, what)
    finally:
        engine.stop()
    quiet = _engine(_native.FakeExecutor(**fake), 4000, {})
    want = drive(quiet, made.requests, tally, what)
    quiet.stop()
    tally.injected += 1
    tally.rows_checked += len(made.requests)
    tally.lost += len(made.requests) - len(done)
    tally.figures["rows that ended as errors"] += sum(map(_is_error, done.values()))
    for number, completion in done.items():
        if not _is_error(completion) and _result(completion) != _result(want[number]):
            tally.changed += 1
            tally.failures.append(f"{what}: request {number} has another result")


def run_engines(job: Job) -> Tally:
    tally = Tally(figures={"rows that ended as errors": 0})
    for number in range(job.settings["engines"]):
        what = f"{job.replay} engine {number}"
        try:
            torment(f"{job.seed} {number}", tally, what)
        except _native.NativeError as error:
            tally.failures.append(f"{what}: {error}")
    return tally


def run_whole(job: Job, space: Space) -> Tally:
    """Whole runs: each row is there once, as the undisturbed run has it or as an error row of the engine."""
    tally, rng = Tally(figures={"rows that ended as errors": 0}), job.rng()
    place = Place(fake_work(space.shared, NUM_ROWS, SHAPES), SHAPES[0], space.own / "run", tally)
    want = place.expected.splitlines()
    for number in range(job.settings["runs"]):
        shutil.rmtree(place.folder, ignore_errors=True)
        faults = f"fake:0,seed={rng.randrange(1 << 30)},throw_rate={rng.choice((0, 0.02, 0.2))}"
        faults += f",nan_rate={rng.choice((0, 0.001, 0.02))},copy_rate={rng.choice((0, 0.3))}"
        few_blocks = rng.choice(((), ("--kv-cache-bytes", "20000"), ("--max-num-seqs", "3")))
        code = place.run_here(*few_blocks, model=faults)
        tally.injected += 1
        found = place.shape.rows(place.folder).splitlines()
        if code not in (0, 3):
            place.complain(f"{job.replay} run {number} ({faults}, {few_blocks}): ended with {code}")
        tally.rows_checked += len(want)
        tally.lost += max(0, len(want) - len(found))
        tally.duplicated += max(0, len(found) - len(want))
        for index, (expected, line) in enumerate(zip(want, found, strict=False)):
            if line != expected:
                row = json.loads(line)
                is_error = row["status"] == "error" and row["error"]["code"] == "engine_error"
                tally.figures["rows that ended as errors"] += is_error
                tally.changed += not (is_error and row["index"] == index)
    return tally


def _prepare(shared: Path, _scale: Scale) -> None:
    fake_work(shared, NUM_ROWS, SHAPES)


def _jobs(scale: Scale) -> list[Job]:
    jobs = [Job("engine", ENGINES, seed, {"engines": 1000}) for seed in scale.seeds(10)]
    return jobs + [Job("engine", RUNS, seed, {"runs": 10}) for seed in scale.seeds(6)]


def _run(job: Job, space: Space) -> Tally:
    return run_engines(job) if job.fault == ENGINES else run_whole(job, space)


SCENARIO = Scenario(_prepare, _jobs, _run, "executors that throw, return NaN, dawdle and lack blocks")
