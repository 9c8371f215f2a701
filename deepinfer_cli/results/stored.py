"""An output file of an earlier attempt: its rows, plain or compressed, and how to mend what a crash left."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from deepinfer_cli.errors import InputError
from deepinfer_cli.results.archive import DecodedRows, is_archive, whole_members
from deepinfer_cli.results.lines import Readable, Records, cut, repair
from deepinfer_cli.results.records import RECORD_START, Record, parse_record


class StoredRows:
    """Context manager. `rows.head` is the next row; a missing file has none."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._cleanup = ExitStack()
        self._num_archived: int | None = None  # bytes of whole members; None: not compressed
        self.rows: Records[Record]

    def __enter__(self) -> StoredRows:
        with self._cleanup:
            stored = self._open()
            file: Readable | None = stored
            if stored is not None and is_archive(self.path):
                self._num_archived = whole_members(stored, self.path, RECORD_START)
                file = DecodedRows(stored, self.path, self._num_archived)
            self.rows = Records(
                file, self.path, parse_record, start=RECORD_START, what="a result row of deepinfer run"
            )
            self._cleanup = self._cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _open(self) -> BinaryIO | None:
        try:
            return self._cleanup.enter_context(Path(self.path).open("rb"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}") from None

    def mend(self) -> str:
        """The tail, once all rows were read. What was done; "" when nothing was."""
        if self._num_archived is None:
            return repair(self.path, self.rows)
        return cut(self.path, self._num_archived)


def has_content(path: str | None) -> bool:
    """Whether there is anything in the file."""
    try:
        return path is not None and Path(path).stat().st_size > 0
    except OSError:
        return False


def remove(*paths: str | Path | None) -> None:
    for path in paths:
        if path is not None:
            Path(path).unlink(missing_ok=True)


def beside(path: str, kind: str) -> str:
    """A hidden file in the same folder, with the same suffix: `.KIND.NAME`."""
    target = Path(path)
    return str(target.with_name(f".{kind}.{target.name}"))
