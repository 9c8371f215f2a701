"""A file of one record a line, as a crash may have left it: its whole lines, its torn tail, and the repair.

Nothing here needs a shutdown hook: a killed process leaves a prefix of what it wrote, and a power loss may
also leave zeros where blocks never reached the disk. No record holds a zero byte, so lines that do are what
is left of lost ones, wherever they stand. Any other bad line that is ended by a newline was not torn by a
crash: the file is refused and stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from deepinfer_cli.errors import InputError, OutputError

_READ_BYTES = 1 << 20
_ZEROS_BYTES = 512  # a file that starts with fewer zeros and no record is somebody else's

T = TypeVar("T")


class BadRecord(Exception):
    """The line is not a record; the text says why."""


@dataclass(frozen=True, slots=True)
class Line:
    data: bytes  # without its newline
    number: int  # 1-based
    end: int  # offset behind it, its newline included
    is_ended: bool  # by a newline


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def lines_of(file: Readable) -> Iterator[Line]:
    """All lines from the start, the last one also without a newline."""
    parts: list[bytes] = []
    number = end = 0
    while piece := file.read(_READ_BYTES):
        begin = 0
        while (newline := piece.find(b"\n", begin)) >= 0:
            parts.append(piece[begin:newline])
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            number += 1
            end += len(data) + 1
            yield Line(data, number, end, True)
            begin = newline + 1
        if begin < len(piece):
            parts.append(piece[begin:])
    if parts:
        data = b"".join(parts)
        yield Line(data, number + 1, end + len(data), False)


class Records(Generic[T]):
    """The records of one file, one at a time: `head` is the next, None at the end.

    After the end `num_whole_bytes` and `lacks_newline` say what `repair` has to do, and `has_gap` that lost
    lines stand before whole ones, which only writing the file anew removes.
    """

    def __init__(
        self, file: Readable | None, name: str, parse: Callable[[bytes], T], *, start: bytes, what: str
    ) -> None:
        self.name = name
        self.head: T | None = None
        self.num_records = 0  # taken in so far
        self.num_whole_bytes = 0  # up to the end of the last record
        self.lacks_newline = False
        self.has_gap = False
        self._lines = iter(()) if file is None else lines_of(file)
        self._parse = parse
        self._start = start  # how every record begins
        self._what = what
        self._lost = False
        self.advance()

    def advance(self) -> None:
        self.head = None
        for line in self._lines:
            if b"\0" in line.data:
                self._check_ours(line)
                self._lost = True
                continue
            try:
                self.head = self._parse(line.data)
            except BadRecord as error:
                if line.is_ended:
                    self._refuse(line, str(error))
                self._check_ours(line)
                return
            self.num_records += 1
            self.num_whole_bytes = line.end
            self.lacks_newline = not line.is_ended
            self.has_gap |= self._lost
            self._lost = False
            return

    def _check_ours(self, line: Line) -> None:
        """A tail is cut only from a file that can be ours."""
        begin = line.data[:_ZEROS_BYTES]
        if self.num_records or not begin.strip(b"\0"):
            return
        begin = begin.partition(b"\0")[0][: len(self._start)]
        if not begin or not self._start.startswith(begin):
            self._refuse(line, "no record begins like this")

    def _refuse(self, line: Line, why: str) -> None:
        raise InputError(
            f"{self.name}:{line.number}: not {self._what}: {why}",
            "the file is left as it is; a line damaged by hand or by the disk has to be removed by hand",
        )


def repair(path: str | Path, records: Records[T]) -> str:
    """Cuts what follows the last record and ends it with a newline, on the disk. Says what was done; "" when
    the file was whole. `records` must be at its end."""
    said = cut(path, records.num_whole_bytes)
    if not records.lacks_newline:
        return said
    try:
        with Path(path).open("ab") as file:
            file.write(b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"cannot repair {path}: {error.strerror}") from None
    return said or "the last row got its newline"


def cut(path: str | Path, num_bytes: int) -> str:
    """Makes the file that long at most, on the disk. Says what was done."""
    try:
        num_cut = Path(path).stat().st_size - num_bytes
        if num_cut <= 0:
            return ""
        with Path(path).open("r+b") as file:
            file.truncate(num_bytes)
            os.fsync(file.fileno())
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise OutputError(f"cannot repair {path}: {error.strerror}") from None
    return f"{num_cut:,} bytes behind the last whole row cut"
