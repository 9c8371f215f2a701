"""Runs the jobs of all scenarios, two at a time, and adds up what they found."""

from __future__ import annotations

import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from tests.torture import calls, disk, engine, fuzz, hub, kills, loaders, many_rows, power
from tests.torture.jobs import Job, Scale, Scenario, Space
from tests.torture.record import Tally

SCENARIOS: dict[str, Scenario] = {
    "kills": kills.SCENARIO,
    "calls": calls.SCENARIO,
    "power": power.SCENARIO,
    "disk": disk.SCENARIO,
    "engine": engine.SCENARIO,
    "loaders": loaders.SCENARIO,
    "hub": hub.SCENARIO,
    "fuzz": fuzz.SCENARIO,
    "rows": many_rows.SCENARIO,
}
_KEPT = Path("build/torture/failed")  # folders of failing jobs


def run_job(job: Job, shared: Path, root: Path) -> Tally:
    """In a process of its own, or the caller's."""
    own = root / job.name
    own.mkdir(parents=True)
    try:
        tally = SCENARIOS[job.scenario].run(job, Space(shared, own))
    except (Exception, SystemExit):
        tally = Tally(failures=[f"{job.replay}: {traceback.format_exc()}"])
    if not tally.is_clean:
        kept = _KEPT / job.name
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(own, kept, ignore_dangling_symlinks=True)
        tally.failures.append(f"its files: {kept}")
    shutil.rmtree(own, ignore_errors=True)
    return tally


def run_jobs(jobs: list[Job], shared: Path, root: Path, processes: int) -> Iterator[tuple[Job, Tally]]:
    """As they finish; those that measure something run last, one at a time."""
    together = [job for job in jobs if not job.alone]
    if processes > 1 and together:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            running = {pool.submit(run_job, job, shared, root): job for job in together}
            for done in as_completed(running):
                yield running[done], done.result()
        jobs = [job for job in jobs if job.alone]
    for job in jobs:
        yield job, run_job(job, shared, root)


def torture(names: Sequence[str], scale: Scale, processes: int) -> dict[str, Tally]:
    """Lines of the table in the order of the scenarios."""
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        root, shared = Path(folder), Path(folder) / "shared"
        shared.mkdir()
        jobs: list[Job] = []
        for name in names:
            SCENARIOS[name].prepare(shared, scale)
            jobs += SCENARIOS[name].jobs(scale)
        for job in jobs:
            tallies[job.fault] = Tally()
        for number, (job, tally) in enumerate(run_jobs(jobs, shared, root, processes), 1):
            tallies[job.fault].add(tally)
            state = "ok" if tally.is_clean else "FAILED"
            print(
                f"[{number}/{len(jobs)}] {job.fault}, seed {job.seed}: {state}", file=sys.stderr, flush=True
            )
    return tallies
