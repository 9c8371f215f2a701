"""math-verify on the same answers, as a second opinion: it never decides, and disagreements are listed.

It runs in worker processes, because it guards its time with a signal that only works in a main thread, and
because an expression can keep it busy for longer than that signal gets through.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Final

from deepinfer_cli.eval.scoring.reasoning import strip_reasoning

SCORERS_WITH_OPINION: Final = ("integer", "number", "math")
TIMEOUT_S: Final = 5  # within the worker, for parsing and for comparing each
HARD_TIMEOUT_S: Final = 30.0  # for one answer, before the worker is given up


@dataclass(frozen=True, slots=True)
class Opinion:
    is_correct: bool | None  # None: it failed
    error: str | None = None


def is_available() -> bool:
    return importlib.util.find_spec("math_verify") is not None


def _judge(job: tuple[str, str]) -> Opinion:
    """One answer, in a worker process."""
    import logging

    library: Any = importlib.import_module("math_verify")
    parse, verify = library.parse, library.verify
    logging.disable(logging.CRITICAL)
    text, gold = job
    try:
        wanted = parse(f"\\boxed{{{gold}}}", parsing_timeout=TIMEOUT_S, raise_on_error=True)
        found = parse(text, parsing_timeout=TIMEOUT_S, raise_on_error=True)
        return Opinion(bool(verify(wanted, found, timeout_seconds=TIMEOUT_S, raise_on_error=True)))
    except Exception as error:
        return Opinion(None, f"{type(error).__name__}: {error}".rstrip(": ")[:200])


def second_opinions(jobs: Sequence[tuple[str, str]], num_workers: int = 1) -> list[Opinion]:
    """An opinion on each (output, gold answer). A worker that hangs or dies costs that answer alone."""
    opinions: list[Opinion] = []
    plain = [(strip_reasoning(output).strip(), gold) for output, gold in jobs]
    while len(opinions) < len(plain):
        opinions += _until_broken(plain[len(opinions) :], num_workers)
    return opinions


def _until_broken(jobs: Sequence[tuple[str, str]], num_workers: int) -> list[Opinion]:
    """Opinions on the first jobs, up to and with the first one whose worker hung or died."""
    context = multiprocessing.get_context("spawn")  # the engine's threads would not survive a fork
    pool = ProcessPoolExecutor(num_workers, mp_context=context)
    done: list[Opinion] = []
    try:
        futures = [pool.submit(_judge, job) for job in jobs]
        for future in futures:
            try:
                done.append(future.result(timeout=HARD_TIMEOUT_S))
            except TimeoutError:
                done.append(Opinion(None, f"no opinion within {HARD_TIMEOUT_S:g} s"))
                _end_workers(pool)
                return done
            except BrokenProcessPool:
                done.append(Opinion(None, "its process died"))
                return done
        return done
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _end_workers(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):
        process.kill()


def library_name() -> str:
    """With its version: opinions of two versions may differ."""
    from importlib.metadata import version

    return f"math-verify {version('math-verify')}"
