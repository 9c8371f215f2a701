"""Outputs in the order of completion: a table of what is there, and the file without what was superseded.

Rows that run again are appended like all others; for a while an index may stand twice. The better row counts:
one of this attempt over older ones, then one with the run's settings, then one that is no retryable error,
then the later one. The table takes 17 bytes for each row.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from deepinfer_cli.errors import InputError, ResourceError
from deepinfer_cli.results.durable import rename_over
from deepinfer_cli.results.ordered import OutputPaths
from deepinfer_cli.results.output_file import OutputFile
from deepinfer_cli.results.records import Record
from deepinfer_cli.results.stored import StoredRows, beside

_SLOT = struct.Struct("<QQB")  # check; where: file number and line; state
_LINE_BITS = 56
_MAX_SLOTS = 1 << 33
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0)

PRESENT, RETRYABLE, FOREIGN, SEEN, KEPT = 1, 2, 4, 8, 16  # state; FOREIGN: written with other settings


def check_of(id_json: bytes, request_hash: str, *, has_source: bool) -> int:
    """64 bits by which a row and its record know each other."""
    data = b"%b\0%b\0%d" % (id_json, request_hash.encode(), has_source)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, person=b"di-check").digest(), "little")


class DoneTable:
    """What the outputs hold, by index. `shard`: (i, n) when only the rows i modulo n are there."""

    def __init__(
        self,
        paths: OutputPaths,
        settings: str,
        shard: tuple[int, int] | None,
        *,
        old_lines: Mapping[str, int] | None = None,
    ) -> None:
        self.paths = paths
        self._settings = settings
        self._shard = shard or (0, 1)
        self._old_lines = dict(old_lines or {})  # lines of each file that earlier attempts wrote
        # Zeros that cost nothing until they are written. Private: a shared mapping cannot grow.
        self._memory = mmap.mmap(-1, _SLOT.size << 10, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        self.num_present = 0
        self.num_seen = 0
        self.needs_rewrite = False  # an index stands twice, or a row is in the wrong file or behind lost ones
        self.num_lines: dict[str, int] = {}

    def close(self) -> None:
        self._memory.close()

    # ---- filling -------------------------------------------------------------------------------------------

    def scan(self, files: Sequence[StoredRows]) -> None:
        """Takes in all rows of the paths' files, which are open at their first row."""
        for number, file in enumerate(files):
            for line, record in _records(file):
                self._add(number, line, record, file.path)
            self.needs_rewrite |= file.rows.has_gap
            self.num_lines[file.path] = file.rows.num_records

    def _add(self, number: int, line: int, record: Record, path: str) -> None:
        offset = self._offset(record.index, path)
        state = PRESENT | RETRYABLE * record.retryable | FOREIGN * (record.settings != self._settings)
        self.needs_rewrite |= self.paths.home(record) != path
        _, where, old_state = _SLOT.unpack_from(self._memory, offset)
        if old_state:
            self.needs_rewrite = True
            if self._rank(number, line, state) < self._rank(*self._place(where), old_state):
                return
        else:
            self.num_present += 1
        check = check_of(record.id_json, record.request_hash, has_source=record.has_source)
        _SLOT.pack_into(self._memory, offset, check, number << _LINE_BITS | line, state)

    def _rank(self, number: int, line: int, state: int) -> tuple[bool, bool, bool, int, int]:
        is_new = line >= self._old_lines.get(self.paths.results[number], 0)
        return is_new, not state & FOREIGN, not state & RETRYABLE, number, line

    def _offset(self, index: int, path: str) -> int:
        first, step = self._shard
        slot, rest = divmod(index, step)
        if rest != first or slot >= _MAX_SLOTS:
            why = "belongs to another shard" if step > 1 and rest != first else "cannot be"
            raise InputError(f"--resume: {path} holds a row with index {index}, which {why}")
        offset = slot * _SLOT.size
        if offset + _SLOT.size > len(self._memory):
            try:
                self._memory.resize(max(2 * len(self._memory), offset + _SLOT.size))
            except OSError:
                raise ResourceError(f"--resume: no memory for a table of {slot:,} rows of {path}") from None
        return offset

    @staticmethod
    def _place(where: int) -> tuple[int, int]:
        return where >> _LINE_BITS, where & ((1 << _LINE_BITS) - 1)

    # ---- asking --------------------------------------------------------------------------------------------

    def take(self, index: int) -> tuple[int, int] | None:
        """(check, state) of the row at this index; it counts as seen."""
        first, step = self._shard
        offset = index // step * _SLOT.size
        if index % step != first or offset + _SLOT.size > len(self._memory):
            return None
        check, where, state = _SLOT.unpack_from(self._memory, offset)
        if not state:
            return None
        self.num_seen += 1
        _SLOT.pack_into(self._memory, offset, check, where, state | SEEN)
        return check, state

    def keep(self, index: int) -> None:
        """The row stands as it is."""
        self._memory[index // self._shard[1] * _SLOT.size + 16] |= KEPT

    def is_winner(self, number: int, line: int, index: int, state: int) -> bool:
        """Whether this is the row that counts for its index, and has all bits of `state`."""
        _, where, found = _SLOT.unpack_from(self._memory, index // self._shard[1] * _SLOT.size)
        return bool(where == number << _LINE_BITS | line and found & state == state)

    def records(self, state: int = PRESENT, without: int = 0) -> Iterator[Record]:
        """The rows that count, have the bits of `state` and none of `without`, from the files once more."""
        for number, path in enumerate(self.paths.results):
            with StoredRows(path) as file:
                for line, record in _records(file):
                    if not self.is_winner(number, line, record.index, state):
                        continue
                    if not self._memory[record.index // self._shard[1] * _SLOT.size + 16] & without:
                        yield record

    def find(self, index: int) -> Record:
        return next(record for record in self.records() if record.index == index)


def _records(file: StoredRows) -> Iterator[tuple[int, Record]]:
    """(number of the row in its file, row)"""
    line = 0
    while (record := file.rows.head) is not None:
        yield line, record
        line += 1
        file.rows.advance()


def compact(
    paths: OutputPaths,
    settings: str,
    shard: tuple[int, int] | None,
    *,
    old_lines: Mapping[str, int],
    end_index: int | None,
) -> dict[str, int]:
    """Leaves one row for each index below `end_index`, in the file where it belongs, and says how many rows
    each file has then. `old_lines`: rows of each file that earlier attempts wrote."""
    table = DoneTable(paths, settings, shard, old_lines=old_lines)
    with ExitStack() as cleanup:
        cleanup.callback(table.close)
        with ExitStack() as opened:
            table.scan([opened.enter_context(StoredRows(path)) for path in paths.results])
        targets = {path: OutputFile.create(beside(path, "merged"), like=path) for path in paths.results}
        for file in targets.values():
            cleanup.callback(file.abandon)
        for record in table.records():
            if end_index is None or record.index < end_index:
                targets[paths.home(record)].write(record.line.decode() + "\n")
        for file in targets.values():
            file.close()
    for path in paths.results:
        rename_over(beside(path, "merged"), path)
    return {path: file.num_rows for path, file in targets.items()}
