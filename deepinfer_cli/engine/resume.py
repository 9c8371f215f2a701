"""`--resume`: compare input and output row by row, refuse what does not fit, and say what is left to run.

Nothing is written here and no model runs. Rows that have to run again, and rows missing in the middle, go
into a Spool; the reader then stands before the first row that the output does not reach.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepinfer_cli.engine.counters import Counters
from deepinfer_cli.engine.redo import Recorder, Spool
from deepinfer_cli.errors import InputError
from deepinfer_cli.requests.parser import RowParser
from deepinfer_cli.requests.reader import RowReader
from deepinfer_cli.requests.types import ERROR_CODES, ParsedRow, RawLine, RowError, RowIdentity, SkippedRow
from deepinfer_cli.results.ordered import OrderedOutputs
from deepinfer_cli.results.records import Record

_FORCE_HINT = "`--resume --force` runs what changed again; another file with -o keeps both"


class OtherSettings(InputError):
    """A row was written with other settings, another model or other numerics."""

    def __init__(self, record: Record, where: str) -> None:
        super().__init__(f"{where}: written with settings {record.settings}", _FORCE_HINT)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a resumed run found."""

    num_kept: int
    num_retried: int  # rows with a retryable error
    num_forced: int  # rows that changed, under --force
    num_missing: int  # rows that the output lacks although it goes on behind them
    end_index: int | None  # the input has no rows from here on, but the output has (under --force)
    has_more: bool  # rows behind what the output holds


class Comparer:
    """The reader, parser and spool are the run's own: afterwards the run goes on with them."""

    def __init__(
        self,
        *,
        reader: RowReader,
        parser: RowParser,
        tables: Sequence[Recorder],
        spool: Spool,
        counters: Counters,
        settings: str,
        file_names: tuple[str, ...],
        force: bool,
        keep_going: Callable[[], bool],
    ) -> None:
        self._reader = reader
        self._parser = parser
        self._tables = tables
        self._spool = spool
        self._counters = counters
        self._settings = settings
        self._file_names = file_names
        self._force = force
        self._keep_going = keep_going
        self._num_kept = self._num_retried = self._num_forced = self._num_missing = 0

    def ordered(self, outputs: OrderedOutputs) -> Comparison:
        """Side by side with outputs in input order."""
        end_index: int | None = None
        while (next_index := outputs.next_index) is not None:
            raw = self._next_line()
            if raw is None:
                end_index = self._refuse_or_drop(outputs, next_index)
                break
            self._compare(raw, self._parse(raw), outputs.take(raw.index), outputs.paths.output)
        return Comparison(
            self._num_kept,
            self._num_retried,
            self._num_forced,
            self._num_missing,
            end_index,
            self._look_ahead(),
        )

    # ---- the input -----------------------------------------------------------------------------------------

    def _next_line(self) -> RawLine | None:
        while self._keep_going():
            raw = self._reader.next_line(0.2)
            if raw is not None or self._reader.done:
                return raw
        return None

    def _parse(self, raw: RawLine) -> ParsedRow:
        for table in self._tables:
            table.next_row()
        return self._parser.parse(raw)

    def _look_ahead(self) -> bool:
        """Whether any row is left to run; it is put back then."""
        while (raw := self._next_line()) is not None:
            parsed = self._parse(raw)
            if not isinstance(parsed, SkippedRow):
                for table in self._tables:
                    table.repeat()
                self._reader.put_back(raw)
                return True
            self._skip(parsed)
        return False

    def _skip(self, row: SkippedRow) -> None:
        self._counters.num_read += 1
        self._counters.num_other_shard += row.reason == "shard"
        self._counters.num_dropped_duplicates += row.reason == "duplicate"

    # ---- one row -------------------------------------------------------------------------------------------

    def _compare(self, raw: RawLine, row: ParsedRow, record: Record | None, path: str) -> None:
        if isinstance(row, SkippedRow):
            self._skip(row)
            if record is not None:
                self._refuse_skipped(raw, row, record, path)
            return
        identity = row.identity
        if record is None:
            self._num_missing += 1
        else:
            why = self._difference(identity, record, path)
            if not why and not record.retryable:
                self._keep(identity, record)
                return
            if why and not self._force:
                raise InputError(f"--resume: {self._place(raw)}: {why}; {path} is left as it is", _FORCE_HINT)
            self._num_forced += bool(why)
            self._num_retried += not why
        self._spool.put(raw, self._tables[0].last, self._tables[1].last)

    def _difference(self, identity: RowIdentity, record: Record, path: str) -> str:
        """Why the record is no answer to the row; "" when it is one."""
        if record.id_json != (identity.id_json or "null").encode():
            here, there = _shown(identity.id_json or "null"), _shown(record.id_json.decode())
            return f"the row has id {here}, but its place in the output holds {there}"
        if record.settings != self._settings:
            raise OtherSettings(record, f"{path}: index {record.index}")
        if record.request_hash != identity.request_hash:
            return f"the row (id {_shown(identity.id_json or 'null')}) has changed since it was run"
        if record.has_source != (len(self._file_names) > 1):
            return "there was one input and now are several, or the reverse: rows would name their file"
        return ""

    def _refuse_skipped(self, raw: RawLine, row: SkippedRow, record: Record, path: str) -> None:
        why = "belongs to another shard" if row.reason == "shard" else "is a duplicate that is left out"
        message = f"--resume: {self._place(raw)}: {path} holds this row, but it now {why}"
        raise InputError(message, "use the same --shard and --on-duplicate, or another file with -o")

    def _refuse_or_drop(self, outputs: OrderedOutputs, next_index: int) -> int | None:
        """The input has ended, the output has not."""
        if not self._keep_going():
            return None
        record = outputs.take(next_index)
        assert record is not None
        if not self._force:
            what = f"index {record.index}, id {_shown(record.id_json.decode())}"
            message = f"--resume: {outputs.paths.output} holds a row ({what}) that the input does not have"
            raise InputError(f"{message}; the file is left as it is", _FORCE_HINT)
        return next_index

    def _place(self, raw: RawLine) -> str:
        place = f"line {raw.line}"
        return f"{self._file_names[raw.file_number]} {place}" if len(self._file_names) > 1 else place

    def _keep(self, identity: RowIdentity, record: Record) -> None:
        self._num_kept += 1
        self._counters.num_read += 1
        count_kept(self._counters, identity, record, self._file_names)


def _shown(id_json: str) -> str:
    return id_json if len(id_json) <= 80 else id_json[:77] + "..."


def count_kept(
    counters: Counters, identity: RowIdentity, record: Record, file_names: tuple[str, ...]
) -> None:
    """A row of an earlier attempt, counted as if this one had run it."""
    fields = record.fields
    warnings = json.loads(fields.get("warnings", b"[]"))
    counters.by_warning.update(warning["code"] for warning in warnings)
    if record.failed:
        error = json.loads(fields["error"])
        code = error["code"] if error.get("code") in ERROR_CODES else "engine_error"
        counters.add_failure(identity, RowError(code, str(error["message"])), file_names)
        return
    counters.num_ok += 1
    samples = json.loads(fields.get("outputs") or fields["choices"])
    counters.by_finish.update(sample["finish_reason"] for sample in samples)
    usage = json.loads(fields["usage"])
    counters.num_kept_prompt_tokens += usage["prompt_tokens"]
    counters.num_kept_output_tokens += usage["completion_tokens"]
