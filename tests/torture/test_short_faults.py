"""The smallest size of every torture scenario beyond kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture import calls, disk, engine, hub, many_rows, power, shim
from tests.torture.jobs import Job, Scale, Space
from tests.torture.power import Disk
from tests.torture.record import Tally
from tests.torture.runner import SCENARIOS
from tests.torture.shim import Call
from tests.torture.workload import SHAPES, Place, fake_work

NUM_ROWS = 200


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    shim.build(folder)
    fake_work(folder, NUM_ROWS, SHAPES[:1])
    return folder


def place_in(shared: Path, folder: Path) -> Place:
    return Place(fake_work(shared, NUM_ROWS, SHAPES[:1]), SHAPES[0], folder / "run", Tally())


def test_a_call_that_fails(shared: Path, tmp_path: Path) -> None:
    place = place_in(shared, tmp_path)
    failing = calls.Failing(place, Job("calls", "write", 2).rng(), shim.build(shared), "write", "here")
    tally = failing.run(1)
    assert tally.is_clean, tally.failures
    assert tally.injected and tally.rows_checked == NUM_ROWS


@pytest.mark.parametrize(
    "fault", ["write:0:ENOSPC:on", "write:1:torn", "fsync:1:EIO", "rename:0:EIO", "open:1:EIO"]
)
def test_the_library_makes_calls_fail(shared: Path, tmp_path: Path, fault: str) -> None:
    place = place_in(shared, tmp_path)
    env = shim.environment(shim.build(shared), place.folder, fault=fault)
    assert place.run(env=env) == 1, place.said
    assert str(place.folder) in place.said


def test_power_losses(shared: Path, tmp_path: Path) -> None:
    place = place_in(shared, tmp_path)
    loss = power.PowerLoss(
        place, Job("power", "loss", 3).rng(), shim.build(shared), tmp_path / "calls", "here"
    )
    tally = loss.run(8, (*power._HARMLESS, "stale"), in_process=True)
    assert tally.is_clean, tally.failures
    assert tally.injected == 8 and tally.rows_checked


def test_what_a_power_loss_takes() -> None:
    one, two = b'{"index":1}\n', b'{"index":2}\n'
    expected = frozenset((one[:-1], two[:-1]))
    rng = Job("power", "loss", 1).rng()
    disk = Disk({"out": one}, expected)
    disk.know("out", 7)
    for call in (
        Call("w", 7, len(one), two, b""),
        Call("o", 8, 0, b"/x/.new", b""),
        Call("w", 8, 0, one + two, b""),
    ):
        disk.apply(call)
    assert disk.after_crash("gone", rng)["out"] == one
    assert disk.after_crash("all", rng)["out"] == one + two
    assert disk.after_crash("zeros", rng)["out"] == one + bytes(len(two))
    assert one + two in {disk.after_crash("cut", rng)["out"] + two[len(two) :] for _ in range(200)}
    assert not disk.gone
    # A rename that reaches the disk before the bytes of the new file do.
    disk.apply(Call("r", 0, 0, b"/x/.new", b"/x/out"))
    disk.apply(Call("d", 1, 0, b"", b""))
    assert disk.after_crash("gone", rng)["out"] == b""
    assert disk.gone == {one[:-1]}


def test_a_full_file_system(shared: Path, tmp_path: Path) -> None:
    job = Job("disk", disk.FULL, 1, {"fills": 1})
    with disk.small_disk(tmp_path / "small") as kind:
        folder = tmp_path / "small" if kind else tmp_path  # without one the run has to end well
        place = Place(
            fake_work(shared, NUM_ROWS, SHAPES[:1]), SHAPES[0], folder / "run", Tally(), said_in=tmp_path
        )
        if kind:
            tally = disk.Filling(place, job.rng(), "here").run(1)
            assert tally.injected
        else:
            place.check_end("here")
            tally = place.tally
    assert tally.is_clean, tally.failures
    assert tally.rows_checked == NUM_ROWS


def test_executors_with_faults(tmp_path: Path) -> None:
    tally = engine.run_engines(Job("engine", engine.ENGINES, 1, {"engines": 40}))
    assert tally.is_clean, tally.failures
    assert tally.figures["rows that ended as errors"] and tally.rows_checked > 400


def test_downloads(tmp_path: Path) -> None:
    for kind in hub.FAULTS:
        tally = hub.Downloads(kind, Job("hub", kind, 1).rng(), tmp_path / kind[:20], "here").run()
        assert tally.is_clean, tally.failures
        assert tally.injected and tally.rows_checked


def test_many_rows(tmp_path: Path) -> None:
    job = Job("rows", many_rows.FAKE, 1, {"rows": 3000, "runs": 1})
    (tmp_path / "own").mkdir()
    tally = SCENARIOS["rows"].run(job, Space(tmp_path, tmp_path / "own"))
    assert tally.is_clean, tally.failures
    assert tally.rows_checked == 3000 and len(tally.figures) == 5


def test_every_job_has_a_name_of_its_own() -> None:
    for name, scenario in SCENARIOS.items():
        jobs = scenario.jobs(Scale(factor=0.2))
        assert jobs and {job.scenario for job in jobs} == {name}
        assert len({job.name for job in jobs}) == len(jobs)
