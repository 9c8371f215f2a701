"""Bytes to lines: line ends, byte order marks, compression, bounds and pipes."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from deepinfer_cli.errors import InputError
from deepinfer_cli.requests.reader import LineSplitter, RowReader
from deepinfer_cli.requests.sources import expand
from deepinfer_cli.requests.types import RawLine


def read_all(
    *paths: Path, max_row_bytes: int = 1 << 20, limit: int | None = None
) -> tuple[list[RawLine], RowReader]:
    reader = RowReader(expand([str(p) for p in paths]), max_row_bytes=max_row_bytes, limit=limit)
    lines = []
    while (line := reader.next_line(5.0)) is not None:
        lines.append(line)
    assert reader.done
    return lines, reader


def test_lines_are_counted_and_blank_ones_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n \t\r\none\r\n\ntwo\r")
    lines, _ = read_all(path)
    assert [(line.index, line.line, line.data) for line in lines] == [(0, 3, b"one\r"), (1, 5, b"two\r")]


def test_only_0x0a_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    data = "a\u2028b\u2029c\u0085d\x0b\x0c\x1ce\rf".encode()
    path.write_bytes(data + b"\nrest")
    lines, _ = read_all(path)
    assert [line.data for line in lines] == [data, b"rest"]


def test_one_byte_order_mark_per_file(tmp_path: Path) -> None:
    bom = b"\xef\xbb\xbf"
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_bytes(bom + bom + b"x\n" + bom + b"y\n")
    second.write_bytes(gzip.compress(bom + b"z\n"))
    lines, _ = read_all(first, second)
    assert [line.data for line in lines] == [bom + b"x", bom + b"y", b"z"]
    assert [(line.file_number, line.index) for line in lines] == [(0, 0), (0, 1), (1, 2)]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
def test_splitting_does_not_depend_on_the_pieces(chunk: int) -> None:
    data = b"\xef\xbb\xbfone\n\ntwo\nthree is longer\nlast"
    splitter = LineSplitter(12)
    lines = [line for i in range(0, len(data), chunk) for line in splitter.feed(data[i : i + chunk])]
    last = splitter.finish()
    assert last is not None
    whole = [line[:2] for line in (*lines, last)]
    assert whole == [(b"one", 3), (b"", 0), (b"two", 3), (None, 15), (b"last", 4)]
    digest = hashlib.blake2b(b"three is longer", digest_size=16, person=b"di-long-row").digest()
    assert [line[2] for line in (*lines, last)] == [b"", b"", b"", digest, b""]


def test_a_line_as_long_as_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"x" * 2000 + b"\n" + b"y" * 2001 + b"\n" + b"z" * 2000)
    lines, _ = read_all(path, max_row_bytes=2000)
    assert [(line.num_bytes, line.data is None) for line in lines] == [
        (2000, False),
        (2001, True),
        (2000, False),
    ]


def test_a_huge_line_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(256):
            file.write(b"x" * (1 << 20))  # 256 MiB in one line, 260 KiB in the file
        file.write(b"\nafter\n")
    tracemalloc.start()
    try:
        lines, _ = read_all(path, max_row_bytes=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(line.data, line.num_bytes) for line in lines] == [(None, 256 << 20), (b"after", 5)]
    assert peak < 16 << 20


def zstd_frames(*parts: bytes) -> bytes:
    return b"".join(zstandard.ZstdCompressor().compress(part) for part in parts)


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"one\ntw") + gzip.compress(b"o\n") + gzip.compress(b"") + gzip.compress(b"three"),
        gzip.compress(b"one\ntwo\nthree") + b"\0" * 700,
        zstd_frames(b"one\ntw", b"o\n", b"three"),
        b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstd_frames(b"one\ntwo\nthree"),
    ],
    ids=["members", "padding", "frames", "skippable frame"],
)
def test_members_and_frames(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "named.jsonl"  # the name says nothing
    path.write_bytes(data)
    lines, reader = read_all(path)
    assert [line.data for line in lines] == [b"one", b"two", b"three"]
    assert reader.num_damaged == 0


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_truncated_archives_keep_whole_rows(tmp_path: Path, kind: str) -> None:
    random.seed(3)
    rows = [bytes(random.choices(b"abcdefgh", k=100)) for _ in range(3000)]
    text = b"\n".join(rows)
    whole = gzip.compress(text) if kind == "gzip" else zstd_frames(text)
    for keep in (6, 20, len(whole) // 2, len(whole) - 1):
        path = tmp_path / f"cut{keep}"
        path.write_bytes(whole[:keep])
        lines, reader = read_all(path)
        assert reader.num_damaged == 1
        assert [line.data for line in lines] == rows[: len(lines)]
        assert len(lines) < len(rows)


def test_damage_inside_an_archive(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b"".join(b"row %d\n" % i for i in range(20000))))
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / "a.gz"
    path.write_bytes(bytes(data))
    said: list[str] = []
    reader = RowReader(expand([str(path)]), max_row_bytes=1000, on_damage=said.append)
    while reader.next_line(1.0) is not None:
        pass
    assert reader.num_damaged == 1 and "whole rows before that" in said[0]


def test_a_pipe_is_never_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(path, os.O_WRONLY)  # opens only once somebody reads
    reader = RowReader(expand([str(path)]), max_row_bytes=100)
    os.write(writing, b"first row\nhalf a")
    line = reader.next_line(1.0)
    os.close(reading)
    assert line is not None and line.data == b"first row"
    assert reader.next_line(0.0) is None and not reader.done
    os.write(writing, b" row\n")
    line = reader.next_line(1.0)
    assert line is not None and line.data == b"half a row"
    os.close(writing)
    assert reader.next_line(1.0) is None and reader.done


def test_rows_are_estimated_from_sizes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 99 + b"\n" + (b"x" * 99 + b"\n") * 99_999)
    reader = RowReader(expand([str(path)]), max_row_bytes=1000)
    assert reader.estimated_rows() is None
    for _ in range(2000):
        reader.next_line(0.0)
    estimate = reader.estimated_rows()
    assert estimate is not None and 70_000 < estimate < 130_000
    while reader.next_line(0.0) is not None:
        pass
    assert reader.estimated_rows() == 100_000


def test_limit_stops_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"a\nb\nc\n")
    assert [line.data for line in read_all(path, limit=2)[0]] == [b"a", b"b"]
    assert read_all(path, limit=0)[0] == []


def test_globs_are_sorted_and_arguments_keep_their_order(tmp_path: Path) -> None:
    for name in ("b1", "a10", "a2", "odd[1]"):
        (tmp_path / name).write_bytes(b"")
    names = [s.path.rsplit("/", 1)[1] for s in expand([str(tmp_path / "b*"), str(tmp_path / "a*")])]
    assert names == ["b1", "a10", "a2"]
    assert expand([str(tmp_path / "odd[1]")])[0].path.endswith("odd[1]")
    with pytest.raises(InputError, match="no file matches"):
        expand([str(tmp_path / "z*")])
    with pytest.raises(InputError, match="cannot be combined"):
        expand(["-", str(tmp_path / "a2")])
