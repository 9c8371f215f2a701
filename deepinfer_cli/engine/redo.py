"""Rows of the input that have to run although the output goes on behind them: kept aside as they were read.

While a resumed run compares input and output it may not know yet whether anything will run at all, and a pipe
cannot be read twice. So these rows wait in a temporary file, together with what the id tables said of them.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from typing import IO, Any

from deepinfer_cli.requests.scan import RowTable
from deepinfer_cli.requests.types import RawLine

_HELD_BYTES = 16 << 20  # more of them go to a file
_HEAD = struct.Struct("<QQIqqQ?I")  # see Spool.put


class Recorder:
    """A table that remembers its last answer, and can be asked to give it once more."""

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self.last = -1  # what it said of the current row; -1 also when it was not asked
        self._was_asked = False
        self._repeats = False

    def next_row(self) -> None:
        self.last = -1
        self._was_asked = False

    def repeat(self) -> None:
        """The row that was just parsed will be parsed once more."""
        self._repeats = self._was_asked

    def insert(self, key: bytes, value: int) -> int:
        return self._answer(self._table.insert, key, value)

    def increment(self, key: bytes) -> int:
        return self._answer(self._table.increment, key)

    def _answer(self, ask: Callable[..., int], *args: Any) -> int:
        if self._repeats:
            self._repeats = False
        else:
            self.last = ask(*args)
            self._was_asked = True
        return self.last


class Spool:
    """Rows put in while comparing, then read like any input: the loop's reader and its parser's tables."""

    def __init__(self, folder: str) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - close() closes it
            max_size=_HELD_BYTES, dir=folder
        )
        self._num_put = 0
        self._num_taken = 0
        self.num_rows = 0  # handed out so far
        self.num_damaged = 0
        self._seen = -1  # answers of the id tables for the row that was handed out last
        self._occurrence = -1

    @property
    def num_left(self) -> int:
        return self._num_put - self._num_taken

    def put(self, row: RawLine, seen: int, occurrence: int) -> None:
        data = row.digest if row.data is None else row.data
        head = (row.index, row.line, row.file_number, seen, occurrence, row.num_bytes, row.data is None)
        self._file.write(_HEAD.pack(*head, len(data)) + data)
        self._num_put += 1

    def rewind(self) -> None:
        self._file.seek(0)

    # ---- as the loop's reader ------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return not self.num_left

    def next_line(self, timeout: float) -> RawLine | None:
        if self.done:
            return None
        *head, too_long, num_bytes = _HEAD.unpack(self._file.read(_HEAD.size))
        index, line, file_number, self._seen, self._occurrence, row_bytes = head
        data = self._file.read(num_bytes)
        self._num_taken += 1
        self.num_rows += 1
        if too_long:
            return RawLine(index, line, file_number, None, row_bytes, data)
        return RawLine(index, line, file_number, data, row_bytes)

    def estimated_rows(self) -> int | None:
        return None

    def close(self) -> None:
        self._file.close()

    # ---- as the tables of its parser -----------------------------------------------------------------------

    def insert(self, key: bytes, value: int) -> int:
        return self._seen

    def increment(self, key: bytes) -> int:
        return self._occurrence
