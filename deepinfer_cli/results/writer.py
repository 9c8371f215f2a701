"""Rows in the promised order, inside one bound that look-ahead and reordering share."""

from __future__ import annotations

from sys import getsizeof

from deepinfer_cli.results.sink import LineOutput

MAX_OPEN_ROWS = 4096  # read but not yet written
MAX_OPEN_BYTES = 256 << 20  # their lines and prompts, and output lines that wait for their turn


class RowWriter:
    """Takes each row's line under its ordinal, in any order; writes by ordinal, or at once."""

    def __init__(self, output: LineOutput, errors: LineOutput | None, *, keep_order: bool) -> None:
        self._output = output
        self._errors = errors
        self._keep_order = keep_order
        self._held: dict[int, tuple[str, bool]] = {}  # ordinal -> (line, failed)
        self._next = 0  # ordinal that is written next
        self._next_open = 0  # ordinal that the next opened row gets
        self._row_bytes: dict[int, int] = {}  # ordinal of an unwritten row -> bytes counted for it
        self.open_bytes = 0

    @property
    def num_open(self) -> int:
        return len(self._row_bytes)

    @property
    def num_held(self) -> int:
        """Finished rows that wait for an earlier one."""
        return len(self._held)

    @property
    def num_written(self) -> int:
        return self._output.num_rows + (self._errors.num_rows if self._errors else 0)

    def has_room(self, max_bytes: int | None = None) -> bool:
        """Whether another row may be read. A single row is always let in."""
        if not self._row_bytes:
            return True
        return len(self._row_bytes) < MAX_OPEN_ROWS and self.open_bytes < (max_bytes or MAX_OPEN_BYTES)

    def open_row(self, num_bytes: int) -> int:
        """A row was read: its ordinal, dense over the rows that get an output row."""
        ordinal = self._next_open
        self._next_open += 1
        self._row_bytes[ordinal] = num_bytes
        self.open_bytes += num_bytes
        return ordinal

    def grow_row(self, ordinal: int, num_bytes: int) -> None:
        """More is held for an open row than its line: the token ids of its prompt, say."""
        self._row_bytes[ordinal] += num_bytes
        self.open_bytes += num_bytes

    def close_row(self, ordinal: int, line: str, *, failed: bool) -> None:
        if not self._keep_order:
            self._write(ordinal, line, failed)
            return
        if ordinal != self._next:
            self._held[ordinal] = (line, failed)
            self.grow_row(ordinal, getsizeof(line))
            return
        self._write(ordinal, line, failed)
        self._next += 1
        while (held := self._held.pop(self._next, None)) is not None:
            self._write(self._next, *held)
            self._next += 1

    def flush(self) -> None:
        self._output.flush()
        if self._errors is not None:
            self._errors.flush()

    def _write(self, ordinal: int, line: str, failed: bool) -> None:
        self.open_bytes -= self._row_bytes.pop(ordinal)
        (self._errors if failed and self._errors is not None else self._output).write(line)
