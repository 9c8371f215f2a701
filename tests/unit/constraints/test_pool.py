"""The processes that check texts: limits, deaths, and that none is left behind."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepinfer_cli.constraints import pool as pool_module
from deepinfer_cli.constraints.pool import CheckPool
from deepinfer_cli.constraints.types import CheckSpec
from deepinfer_cli.constraints.validate import Verdict
from tests.support.runs import ROOT

OBJECT = CheckSpec("json_object", "")
ENDLESS = CheckSpec("regex", "(a+)+b")
ENDLESS_TEXT = "a" * 64


class Pool(CheckPool):
    def __init__(self, seconds: float = 0.2) -> None:
        self.done: queue.SimpleQueue[tuple[int, list[Verdict]]] = queue.SimpleQueue()
        super().__init__(lambda *found: self.done.put(found), seconds=seconds)


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.close()


def verdicts(pool: Pool, count: int) -> dict[int, list[Verdict]]:
    found: dict[int, list[Verdict]] = {}
    while len(found) < count:
        ordinal, taken = pool.done.get(timeout=60)
        found[ordinal] = taken
    return found


def pids(pool: Pool) -> list[int]:
    return [w._process.pid for w in pool._workers if w._process is not None]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_rows_of_several_texts_and_a_row_without_end(pool: Pool) -> None:
    pool.submit(7, OBJECT, ["{}", "[]", '{"a":1}'])
    pool.submit(8, ENDLESS, [ENDLESS_TEXT, "aab"])
    pool.submit(9, OBJECT, ["{}"])  # the next row is checked by a new process
    pool.submit(10, CheckSpec("json_object", ""), ['{"a":' * 20_000 + "1" + "}" * 20_000])
    found = verdicts(pool, 4)
    assert [v.outcome for v in found[7]] == ["valid", "invalid", "valid"]
    assert [v.outcome for v in found[8]] == ["timeout", "timeout"]
    assert [v.outcome for v in found[9] + found[10]] == ["valid", "valid"]


def test_nothing_is_started_before_the_first_text_or_left_after_the_last(pool: Pool) -> None:
    assert not pool._workers
    pool.submit(0, OBJECT, ["{}"])
    verdicts(pool, 1)
    (pid,) = pids(pool)
    assert is_alive(pid)
    pool.close()
    assert not is_alive(pid)


def test_closing_ends_a_check_that_is_under_way() -> None:
    pool = Pool(seconds=600)
    pool.submit(0, OBJECT, ["{}"])
    verdicts(pool, 1)
    pool.submit(1, ENDLESS, [ENDLESS_TEXT])
    (pid,) = pids(pool)
    pool.close()
    assert not is_alive(pid)
    assert not any(thread.is_alive() for thread in pool._threads)


def test_a_killed_process_costs_no_row(pool: Pool) -> None:
    pool.submit(0, OBJECT, ["{}"])
    verdicts(pool, 1)
    os.kill(pids(pool)[0], signal.SIGKILL)
    pool.submit(1, OBJECT, ["{}"])
    assert verdicts(pool, 1)[1] == [Verdict("valid", parsed="{}")]


def test_without_processes_a_row_is_unchecked_not_valid(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    pool.submit(0, OBJECT, ["{}"])
    ((verdict,),) = verdicts(pool, 1).values()
    assert verdict.outcome == "unchecked"
    assert "/nowhere/python" in verdict.message


def test_a_program_that_is_no_worker_is_unchecked(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    pool.submit(0, OBJECT, ["{}"])
    ((verdict,),) = verdicts(pool, 1).values()
    assert (verdict.outcome, "ended with 1" in verdict.message) == ("unchecked", True)


def test_many_rows_get_a_second_process(pool: Pool) -> None:
    for ordinal in range(200):
        pool.submit(ordinal, OBJECT, ["{}"])
    assert len(verdicts(pool, 200)) == 200
    assert len(pool._workers) == 2


PARENT = """
import queue, time
from deepinfer_cli.constraints.pool import CheckPool
from deepinfer_cli.constraints.types import CheckSpec
done = queue.SimpleQueue()
pool = CheckPool(lambda *found: done.put(found), seconds=0.5)
pool.submit(0, CheckSpec("json_object", ""), ["{}"])
assert done.get(timeout=60)
pool.submit(1, CheckSpec("regex", "(a+)+b"), ["a" * 64])
print(*[w._process.pid for w in pool._workers], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_they_end_with_their_parent(number: signal.Signals) -> None:
    """Also in the middle of a check that looks at nothing."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    )
    assert parent.stdout is not None
    found = [int(pid) for pid in parent.stdout.readline().split()]
    assert found and all(is_alive(pid) for pid in found)
    parent.send_signal(number)
    parent.wait(60)
    deadline = time.monotonic() + 60
    while any(is_alive(pid) for pid in found):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.02)
    parent.stdout.close()


def test_workers_import_neither_the_engine_nor_the_program() -> None:
    code = (
        "import sys; import deepinfer_cli.constraints.worker, deepinfer_cli.constraints.schema_check; "
        "bad = {'deepinfer_cli._native', 'deepinfer_cli.engine', 'llguidance', 'typer', 'rfc3987_syntax'} "
        "& set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_number_of_workers_is_bounded() -> None:
    assert 2 <= pool_module.most_workers() <= 8
