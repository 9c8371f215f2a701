"""Input bytes to lines: one pass, bounded memory, never a seek, and never a wait while others have work."""

from __future__ import annotations

import hashlib
import os
import select
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from deepinfer_cli.requests.decompress import (
    MAGIC_BYTES,
    Decompressor,
    TruncatedArchive,
    decompressor_for,
)
from deepinfer_cli.requests.sources import STDIN, Source, refuse_foreign
from deepinfer_cli.requests.types import RawLine

_READ_BYTES = 1 << 18
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
# Without 0x0A, or None when too long; its length; a digest of its bytes when too long, else empty.
_Line = tuple[bytes | None, int, bytes]


class LineSplitter:
    """Pieces of one file to its lines. Records end at 0x0A only; too long a line is hashed, not held."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []  # the unfinished line
        self._num_bytes = 0  # its length; parts are dropped once it is over the limit
        self._hash: Any = None  # of what was dropped
        self._at_start = True

    def feed(self, piece: bytes) -> Iterator[_Line]:
        """Every line that ends in `piece`."""
        begin = 0
        while (end := piece.find(b"\n", begin)) >= 0:
            self._append(piece[begin:end])
            yield self._take()
            begin = end + 1
        if begin < len(piece):
            self._append(piece[begin:])

    def finish(self) -> _Line | None:
        """The last line when no newline ends it."""
        return self._take() if self._num_bytes else None

    def _append(self, part: bytes) -> None:
        self._num_bytes += len(part)
        self._parts.append(part)
        if self._num_bytes > self._max_bytes + len(_BOM):
            if self._hash is None:
                self._hash = _hash_of_long_row()
            for held in self._parts:
                self._hash.update(held)
            self._parts.clear()

    def _take(self) -> _Line:
        line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        num_bytes = self._num_bytes
        digest = b"" if self._hash is None else self._hash.digest()
        self._parts.clear()
        self._num_bytes = 0
        self._hash = None
        if self._at_start:
            self._at_start = False
            if line.startswith(_BOM):
                line, num_bytes = line[len(_BOM) :], num_bytes - len(_BOM)
        if num_bytes <= self._max_bytes:
            return line, num_bytes, b""
        return None, num_bytes, digest or _hash_of_long_row(line).digest()


def _hash_of_long_row(data: bytes = b"") -> Any:
    return hashlib.blake2b(data, digest_size=16, person=b"di-long-row")


class _OpenFile:
    """One input being read."""

    def __init__(self, fd: int, source: Source, number: int, max_row_bytes: int) -> None:
        self.fd = fd
        self.source = source
        self.number = number
        self.line = 0  # lines delivered so far
        self.splitter = LineSplitter(max_row_bytes)
        self.head = b""  # first bytes until the format is known
        self.decoder: Decompressor | None = None
        mode = os.fstat(fd).st_mode
        self.can_wait = not stat.S_ISREG(mode)  # a pipe, socket or terminal: reading may block
        self.at_end = False
        self.lines: Iterator[_Line] = iter(())  # of what has been read


class RowReader:
    """All non-blank lines of the run's inputs, in order.

    `next_line(timeout)` returns a line, or None: then either `done` is true, or nothing has arrived in time.
    Damage to an archive ends its file, keeps the rows before it, and is told through `on_damage`.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        max_row_bytes: int,
        limit: int | None = None,
        on_damage: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._waiting = deque(enumerate(sources))
        sizes = [source.num_bytes for source in sources]
        self._total_bytes = None if None in sizes else sum(size or 0 for size in sizes)
        self._max_row_bytes = max_row_bytes
        self._limit = limit
        self._on_damage = on_damage
        self._file: _OpenFile | None = None
        self.done = False
        self._put_back: RawLine | None = None
        self._is_done_but_for_it = False
        self.num_rows = 0  # non-blank lines delivered so far
        self.num_damaged = 0  # inputs that ended early
        self.num_bytes_read = 0  # as stored
        self.rows_per_file = [0] * len(sources)

    def put_back(self, row: RawLine) -> None:
        """The next call of next_line gives `row` again."""
        self._put_back = row
        self._is_done_but_for_it, self.done = self.done, False

    def next_line(self, timeout: float) -> RawLine | None:
        if self._put_back is not None:
            row, self._put_back = self._put_back, None
            self.done = self._is_done_but_for_it
            return row
        if self._limit is not None and self.num_rows >= self._limit:
            self.close()
        while not self.done:
            file = self._file
            if file is None:
                if not self._waiting:
                    self.done = True
                    return None
                file = self._file = self._open()
            try:
                for data, num_bytes, digest in file.lines:
                    file.line += 1
                    if data is None or data.strip(_BLANK):
                        return self._deliver(file, data, num_bytes, digest)
                if file.at_end:
                    self._end_file(file)
                elif not self._read_more(file, timeout):
                    return None
            except TruncatedArchive as error:
                self._damaged(file, str(error))
            except OSError as error:
                self._damaged(file, f"reading failed ({error.strerror})")
        return None

    def estimated_rows(self) -> int | None:
        """Rows of all inputs by sizes and what has been read: exact at the end, unknown for pipes."""
        if self.done or self._limit is not None:
            return self.num_rows if self.done else None
        if self._total_bytes is None or not self.num_bytes_read:
            return None
        estimate = round(self.num_rows * max(self._total_bytes / self.num_bytes_read, 1.0))
        digits = max(len(str(estimate)) - 2, 0)
        return max(round(estimate, -digits), self.num_rows)

    def close(self) -> None:
        self._put_back = None
        if self._file is not None:
            self._end_file(self._file)
        self._waiting.clear()
        self.done = True

    def _deliver(self, file: _OpenFile, data: bytes | None, num_bytes: int, digest: bytes) -> RawLine:
        row = RawLine(self.num_rows, file.line, file.number, data, num_bytes, digest)
        self.num_rows += 1
        self.rows_per_file[file.number] += 1
        return row

    def _open(self) -> _OpenFile:
        number, source = self._waiting.popleft()
        fd = 0 if source.path == STDIN else os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
        return _OpenFile(fd, source, number, self._max_row_bytes)

    def _read_more(self, file: _OpenFile, timeout: float) -> bool:
        """Reads once; False when nothing arrives in time. Decoding happens as lines are taken."""
        if file.can_wait and not select.select([file.fd], [], [], timeout)[0]:
            return False
        data = os.read(file.fd, _READ_BYTES)
        self.num_bytes_read += len(data)
        file.at_end = not data
        if file.decoder is None:
            file.head += data
            if data and len(file.head) < MAGIC_BYTES and b"\n" not in file.head:
                return True
            if file.can_wait or file.source.path == STDIN:  # files were looked at before the run
                refuse_foreign(file.source.name, file.head)
            file.decoder = decompressor_for(file.head)
            data, file.head = file.head, b""
        file.lines = _lines(file.splitter, file.decoder, data, file.at_end)
        return True

    def _damaged(self, file: _OpenFile, damage: str) -> None:
        self.num_damaged += 1
        num_rows = self.rows_per_file[file.number]
        self._on_damage(
            f"{file.source.name}: {damage}; the {num_rows:,} whole rows before that are processed"
        )
        self._end_file(file)

    def _end_file(self, file: _OpenFile) -> None:
        if file.fd != 0:
            os.close(file.fd)
        self._file = None


def _lines(splitter: LineSplitter, decoder: Decompressor, data: bytes, at_end: bool) -> Iterator[_Line]:
    """Lines that `data` completes. In a damaged archive the unfinished line is no row: it was cut."""
    if data:
        for piece in decoder.feed(data):
            yield from splitter.feed(piece)
    if at_end:
        decoder.close()
        last = splitter.finish()
        if last is not None:
            yield last
