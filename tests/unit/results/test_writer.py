"""Order, bounds and whole lines."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.errors import OutputError
from deepinfer_cli.results import output_file, writer
from deepinfer_cli.results.output_file import OutputFile
from deepinfer_cli.results.writer import RowWriter


def make(path: Path, *, keep_order: bool = True, errors: Path | None = None) -> tuple[RowWriter, OutputFile]:
    output = OutputFile.create(str(path))
    return RowWriter(
        output, OutputFile.create(str(errors)) if errors else None, keep_order=keep_order
    ), output


def test_any_order_in_input_order_out(tmp_path: Path) -> None:
    rows, output = make(tmp_path / "out")
    ordinals = [rows.open_row(10) for _ in range(500)]
    random.Random(1).shuffle(ordinals)
    for ordinal in ordinals:
        rows.close_row(ordinal, f"{ordinal}\n", failed=False)
    assert (rows.num_open, rows.open_bytes, rows.num_held) == (0, 0, 0)
    output.close()
    assert (tmp_path / "out").read_text() == "".join(f"{i}\n" for i in range(500))


def test_completion_order(tmp_path: Path) -> None:
    rows, output = make(tmp_path / "out", keep_order=False)
    for _ in range(3):
        rows.open_row(1)
    for ordinal in (2, 0, 1):
        rows.close_row(ordinal, f"{ordinal}\n", failed=False)
    output.close()
    assert (tmp_path / "out").read_text() == "2\n0\n1\n"


def test_errors_apart(tmp_path: Path) -> None:
    rows, output = make(tmp_path / "out", errors=tmp_path / "errors")
    for ordinal in range(4):
        rows.open_row(1)
        rows.close_row(ordinal, f"{ordinal}\n", failed=ordinal % 2 == 1)
    rows.flush()
    output.close()
    assert (tmp_path / "out").read_text() == "0\n2\n"
    assert (tmp_path / "errors").read_text() == "1\n3\n"
    assert rows.num_written == 4


def test_one_bound_for_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_OPEN_ROWS", 3)
    monkeypatch.setattr(writer, "MAX_OPEN_BYTES", 100)
    rows, _ = make(tmp_path / "out")
    rows.open_row(1000)  # one row is always let in, however large
    assert not rows.has_room()
    rows.close_row(0, "0\n", failed=False)
    for _ in range(3):
        assert rows.has_room()
        rows.open_row(10)
    assert not rows.has_room()
    rows.close_row(2, "x" * 90 + "\n", failed=False)  # waits for row 1 and now counts its output
    rows.close_row(3, "3\n", failed=False)
    assert rows.num_held == 2 and not rows.has_room()
    rows.close_row(1, "1\n", failed=False)
    assert rows.has_room() and rows.open_bytes == 0


class FailingDisk:
    """os.write that takes `capacity` bytes in pieces, then fails."""

    def __init__(self, capacity: int, code: int) -> None:
        self.capacity = capacity
        self.code = code
        self._write = os.write

    def __call__(self, fd: int, data: Any) -> int:
        if self.capacity == 0:
            raise OSError(self.code, os.strerror(self.code))
        written = self._write(fd, data[: min(self.capacity, 7)])
        self.capacity -= written
        return written


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("capacity", [0, 3, 10, 11, 35])
def test_a_full_disk_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, capacity: int
) -> None:
    output = OutputFile.create(str(tmp_path / "out"))
    monkeypatch.setattr(output_file.os, "write", FailingDisk(capacity, code))
    with pytest.raises(OutputError, match="out: "):
        for i in range(10):
            output.write(f"line {i:04}\n")  # 10 bytes each
            output.flush()
    text = (tmp_path / "out").read_text()
    assert text == "".join(f"line {i:04}\n" for i in range(capacity // 10))


def test_a_failed_burst_keeps_the_lines_that_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = OutputFile.create(str(tmp_path / "out"))
    monkeypatch.setattr(output_file.os, "write", FailingDisk(25, errno.ENOSPC))
    for i in range(10):
        output.write(f"line {i:04}\n")
    with pytest.raises(OutputError):
        output.flush()
    assert (tmp_path / "out").read_text() == "line 0000\nline 0001\n"
