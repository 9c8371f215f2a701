"""One part of a comparison: one workload, all engines in turns, with the machine's limits beside them.

Each engine has a process of its own with the model loaded. A round runs every engine once, A B C, the next
one C B A, so that what the machine does over minutes meets all of them. Others' share of the machine is
counted while an engine runs: all busy time less that engine's own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from deepinfer_cli.bench.against import LivePeer
from deepinfer_cli.bench.conditions import CpuClock, machine
from deepinfer_cli.bench.peers.engines import Engine
from deepinfer_cli.bench.peers.job import Job
from deepinfer_cli.bench.probes import best_of, measure_limits
from deepinfer_cli.bench.work import ARITHMETICS, Limits
from deepinfer_cli.bench.workloads import WORKLOADS
from deepinfer_cli.errors import EngineError
from deepinfer_cli.machine import thread_pool

JOBS: Final = ("job-200", "job-200-eos")
START: Final = "start"
NAMES: Final = (*WORKLOADS, *JOBS, START)
_JOB_TOKENS: Final = 64
_JOB_CONCURRENCY: Final = 64
_PROMPT: Final = "The capital of France is"
_PROMPT_IDS: Final = (504, 3575, 282, 4649, 314)  # of it, by the tokenizer of the small model


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one engine."""

    cpu_seconds: float
    wall_seconds: float
    num_tokens: int  # that the rate counts: computed ones of a step workload, generated ones of a job
    others_share: float  # of all CPUs


def job_of(workload: str, prompts: Sequence[Sequence[int]], eos: Sequence[int]) -> Job:
    stops = tuple(eos) if workload.endswith("-eos") else ()
    return Job(prompts, _JOB_TOKENS, _JOB_CONCURRENCY, stops)


def measure(
    workload: str,
    engines: Sequence[Engine],
    *,
    num_threads: int,
    num_rounds: int,
    job: Job | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """The part of the record; `job` is there for a job workload."""
    about, limits = machine(), _limits(num_threads)
    runs: dict[str, list[Run]] = {engine.name: [] for engine in engines}
    peaks = dict.fromkeys(runs, 0)
    descriptions = {}
    with ExitStack() as stack:
        turns: dict[str, Callable[[], tuple[Run, int]]] = {}
        for engine in engines:
            if workload == START:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                turns[engine.name] = _Starter(engine, num_threads, folder).run
                descriptions[engine.name] = "a process of its own each time"
            else:
                mode = "steps" if job is None else "jobs"
                is_prefill = job is None and WORKLOADS[workload].is_prefill
                started = engine.start(num_threads, mode, prefix_cache=not is_prefill)
                process = stack.enter_context(started)
                turns[engine.name] = _Worker(process, workload, job).run
                descriptions[engine.name] = process.description
        for turn in turns.values():
            turn()  # warm-up
        for number in range(num_rounds):
            order = list(turns)
            for name in order if number % 2 == 0 else reversed(order):
                run, peak = turns[name]()
                runs[name].append(run)
                peaks[name] = max(peaks[name], peak)
            say(f"{workload}: round {number + 1} of {num_rounds}")
    return {
        "workload": workload,
        "num_threads": num_threads,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": about,
        "limits": best_of(limits, _limits(num_threads)).as_json(),
        "engines": {
            e.name: {
                "is_ours": e.is_ours,
                "model": e.model.name,
                "settings": list(e.settings),
                "description": descriptions[e.name],
                "peak_rss_bytes": peaks[e.name],
                "runs": [_rounded(asdict(run)) for run in runs[e.name]],
            }
            for e in engines
        },
    }


def _rounded(run: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 4) for key, value in run.items()}


def _limits(num_threads: int) -> Limits:
    return measure_limits(ARITHMETICS, thread_pool(num_threads))


def _others(before: CpuClock, own_seconds: float) -> float:
    """The share of all CPUs that neither we nor the engine used since `before`."""
    after = CpuClock.read()
    wall = max(after.wall - before.wall, 1e-9)
    busy = after.busy - before.busy - (after.own - before.own) - own_seconds
    return max(0.0, busy) / wall / (os.cpu_count() or 1)


class _Worker:
    """An engine's process under one workload."""

    def __init__(self, process: LivePeer, workload: str, job: Job | None) -> None:
        self._process = process
        self._work: Any = workload if job is None else asdict(job)
        self._num_tokens = WORKLOADS[workload].total_tokens if job is None else None
        self._is_warm = False

    def run(self) -> tuple[Run, int]:
        """What it cost, and the process's peak memory. The first run of a job is a short one."""
        work = self._work
        if self._num_tokens is None and not self._is_warm:
            width = work["concurrency"]
            work = work | {"prompts": work["prompts"][:width], "max_tokens": 2}
        self._is_warm = True
        before = CpuClock.read()
        answer = self._process.ask(work)
        others = _others(before, answer["busy_seconds"])
        cost = answer["cost"]
        num_tokens = sum(cost["num_output"]) if self._num_tokens is None else self._num_tokens
        run = Run(cost["cpu_seconds"], cost["wall_seconds"], num_tokens, others)
        return run, answer["peak_rss_bytes"]


class _Starter:
    """A new process for each run; the wall time ends with the first byte of its answer."""

    def __init__(self, engine: Engine, num_threads: int, folder: Path) -> None:
        rows = folder / "row.jsonl"
        rows.write_text(json.dumps({"id": "one", "prompt": _PROMPT}) + "\n", encoding="utf-8")
        self._command = engine.first_token_command(num_threads, _PROMPT, rows)
        self._skipped_lines = 1 if engine.kind == "openvino" else 0  # its greeting
        self._environ = {**os.environ, **engine.environ, "OMP_WAIT_POLICY": "passive"}
        self._environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed command has its bytecode
        self._input = (json.dumps(asdict(Job([_PROMPT_IDS], 1, 1))) + "\n").encode()

    def run(self) -> tuple[Run, int]:
        before, started = CpuClock.read(), time.perf_counter()
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environ,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(self._input)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it does not read what it has no use for
        for _ in range(self._skipped_lines):
            process.stdout.readline()
        first = process.stdout.read(1)
        wall = time.perf_counter() - started
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, -signal.SIGPIPE) or not first:
            raise EngineError(f"{self._command[0]} ended with {process.returncode} without a token")
        cpu = usage.ru_utime + usage.ru_stime
        # The process has ended, so its time is in our own by now.
        return Run(cpu, wall, 1, _others(before, 0.0)), usage.ru_maxrss * 1024
