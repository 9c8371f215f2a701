"""Outputs in input order read beside the input, in constant memory: which row answers which, and the merge.

A row stands in the output, in the error file, or in the file of rows that were run again and wait to be
merged. A crash between two renames can leave it in two of them; then the better one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from deepinfer_cli.errors import InputError
from deepinfer_cli.results.durable import rename_over
from deepinfer_cli.results.output_file import OutputFile
from deepinfer_cli.results.records import Record
from deepinfer_cli.results.stored import StoredRows, beside, remove


@dataclass(frozen=True, slots=True)
class OutputPaths:
    """The files of one run that hold rows."""

    output: str
    errors: str | None

    @property
    def again(self) -> str:
        """Rows that were run again, in input order, until they are merged."""
        return beside(self.output, "again") + ".jsonl"

    @property
    def results(self) -> tuple[str, ...]:
        return (self.output,) if self.errors is None else (self.output, self.errors)

    def home(self, record: Record) -> str:
        """Where a row of this kind belongs."""
        return self.errors if record.failed and self.errors is not None else self.output


class OrderedOutputs:
    """Context manager over all files of one run, open at their first row."""

    def __init__(self, paths: OutputPaths, settings: str) -> None:
        self.paths = paths
        self._settings = settings
        self._stack = ExitStack()
        self.files: dict[str, StoredRows] = {}
        self.needs_merge = False  # a row stands twice, or in the wrong file, or behind lost ones

    def __enter__(self) -> OrderedOutputs:
        with self._stack:
            for path in (*self.paths.results, self.paths.again):
                self.files[path] = self._stack.enter_context(StoredRows(path))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def next_index(self) -> int | None:
        """Of the first row that is left."""
        heads = [file.rows.head.index for file in self.files.values() if file.rows.head is not None]
        return min(heads, default=None)

    def take(self, index: int) -> Record | None:
        """The row at this place, if there is one; every file goes on behind it."""
        best: Record | None = None
        home = ""
        num_found = 0
        for path, file in self.files.items():
            head = file.rows.head
            if head is None or head.index != index:
                continue
            num_found += 1
            if best is None or self._rank(head) >= self._rank(best):  # the file of rows run again is last
                best, home = head, path
            self._advance(file)
        if best is not None and (num_found > 1 or home != self.paths.home(best)):
            self.needs_merge = True
        return best

    def _rank(self, record: Record) -> tuple[bool, bool]:
        return record.settings == self._settings, not record.retryable

    def _advance(self, file: StoredRows) -> None:
        rows = file.rows
        assert rows.head is not None
        last = rows.head.index
        rows.advance()
        if rows.head is not None and rows.head.index <= last:
            raise InputError(
                f"{file.path}: the rows are not in input order (index {rows.head.index} comes after {last})",
                "go on with --order completion, if that is how it was written",
            )
        self.needs_merge |= rows.has_gap


@dataclass(slots=True)
class _Changes:
    """What merging would do to one file."""

    rewrite: bool = False  # a row goes, changes, or comes in before the end
    append: bool = False


def merge(paths: OutputPaths, settings: str, *, end_index: int | None) -> bool:
    """Puts rows that were run again into their places, and drops what was superseded and what has an index of
    `end_index` or more. A file is replaced only if its bytes change. Whether any did."""
    changes = _plan(paths, settings, end_index)
    _write(paths, settings, end_index, changes)
    remove(paths.again)
    return any(change.rewrite or change.append for change in changes.values())


def _merged(outputs: OrderedOutputs, end_index: int | None) -> Iterator[tuple[int, Record]]:
    while (index := outputs.next_index) is not None:
        if end_index is not None and index >= end_index:
            return
        record = outputs.take(index)
        assert record is not None
        yield index, record


def _plan(paths: OutputPaths, settings: str, end_index: int | None) -> dict[str, _Changes]:
    changes = {path: _Changes() for path in paths.results}
    with OrderedOutputs(paths, settings) as outputs:
        while (index := outputs.next_index) is not None:
            if end_index is not None and index >= end_index:
                for path, change in changes.items():
                    change.rewrite |= outputs.files[path].rows.head is not None
                break
            before = {path: outputs.files[path].rows.head for path in paths.results}
            best = outputs.take(index)
            assert best is not None
            for path, change in changes.items():
                head = before[path]
                own = head if head is not None and head.index == index else None
                new = best if paths.home(best) == path else None
                if new is not None and own is None and head is None:
                    change.append = True
                elif (new is None) != (own is None) or (new and own and new.line != own.line):
                    change.rewrite = True
        for path, change in changes.items():
            change.rewrite |= outputs.files[path].rows.has_gap
    return changes


def _write(paths: OutputPaths, settings: str, end_index: int | None, changes: dict[str, _Changes]) -> None:
    renames: list[tuple[str, str]] = []
    with ExitStack() as cleanup:
        targets: dict[str, OutputFile] = {}
        first: dict[str, int] = {}  # file that is only appended to: index from which on rows are new
        for path, change in changes.items():
            if change.rewrite:
                new = beside(path, "merged")
                renames.append((new, path))
                targets[path] = OutputFile.create(new, like=path)
            elif change.append:
                targets[path] = OutputFile.create(path, append=True, is_locked=False)
                first[path] = _last_index(path) + 1
            if path in targets:
                cleanup.callback(targets[path].abandon)
        if not targets:
            return
        with OrderedOutputs(paths, settings) as outputs:
            for index, record in _merged(outputs, end_index):
                home = paths.home(record)
                if home in targets and index >= first.get(home, 0):
                    targets[home].write(record.line.decode() + "\n")
        for file in targets.values():
            file.close()
    for new, path in renames:
        rename_over(new, path)


def _last_index(path: str) -> int:
    last = -1
    with StoredRows(path) as stored:
        while stored.rows.head is not None:
            last = stored.rows.head.index
            stored.rows.advance()
    return last
