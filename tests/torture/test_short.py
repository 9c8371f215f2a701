"""The smallest size of every torture scenario; `make torture` does the whole of it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.torture.jobs import Job
from tests.torture.kills import Chain
from tests.torture.record import HEADS, Tally, markdown, record, table
from tests.torture.workload import SHAPES, Place, Work, fake_work, tiny_work

NUM_ROWS = 300


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.mark.parametrize(
    ("fault", "number"),
    [
        ("tiny", signal.SIGKILL),
        pytest.param("tiny", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("retry", signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_chain_of_kills(shared: Path, tmp_path: Path, fault: str, number: int) -> None:
    make = tiny_work if fault == "tiny" else fake_work
    work: Work = make(shared, NUM_ROWS, SHAPES[:1])
    place = Place(work, SHAPES[0], tmp_path / "run", Tally())
    rng = Job("kills", f"{fault} {number}", 5).rng()
    tally = Chain(place, rng, number, 2, "chain", faults=fault == "retry").run()
    assert tally.is_clean, tally.failures
    assert tally.injected == 2 and tally.rows_checked >= NUM_ROWS


def test_what_differs_is_counted() -> None:
    rows = [b'{"index":%d,"text":"%d"}\n' % (i, i) for i in range(5)]
    whole = b"".join(rows)
    for found, counts in (
        (whole, (0, 0, 0)),
        (b"".join(rows[:3]), (2, 0, 0)),
        (whole + rows[1], (0, 1, 0)),
        (b"".join([*rows[:4], rows[4].replace(b'"4"', b'"5"')]), (0, 0, 1)),
        (b"".join([rows[1], rows[0], *rows[2:]]), (0, 0, 1)),
        (whole[:-3], (1, 0, 1)),
        (rows[0][:-1] + b"".join(rows[1:]), (2, 0, 1)),
    ):
        tally = Tally()
        tally.compare(whole, found, "here")
        assert (tally.lost, tally.duplicated, tally.changed) == counts, found
        assert tally.is_clean == (counts == (0, 0, 0)) and tally.rows_checked == 5


def test_the_table_has_a_line_for_each_fault() -> None:
    about = {"date": "2026-01-02", "commit": "abc", "cpu": "Some", "num_cpus": 2, "kernel": "6"}
    document = record(
        {
            "fine": Tally(3, 4000),
            "bad": Tally(1, 5, lost=2, failures=["why"]),
            "none": Tally(not_run="no disk"),
        },
        {"machine": about, "command": "x", "seed": 1, "wall_seconds": 60.0, "cpu_seconds": 90.0},
    )
    lines = table(document).splitlines()
    assert len(lines) == 5 and all(head in lines[0] for head in HEADS)
    assert "4,000" in lines[2] and lines[4].split() == ["none", "not", "run"]
    page = markdown(document)
    assert "| fine | 3 | 4,000 | 0 | 0 | 0 |" in page and "- FAILED bad: why" in page
    assert "2026-01-02, commit abc" in page and "- none: not run: no disk" in page
