"""`--resume`: compare input and output row by row, refuse what does not fit, and say what is left to run.

Nothing is written here and no model runs. Rows that have to run again, and rows missing in the middle, go
into a Spool; the reader then stands before the first row that the output does not reach.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from deepinfer_cli.engine.counters import Counters
from deepinfer_cli.engine.loop import parse_row
from deepinfer_cli.engine.redo import Recorder, Spool
from deepinfer_cli.errors import InputError
from deepinfer_cli.requests.parser import RowParser
from deepinfer_cli.requests.reader import RowReader
from deepinfer_cli.requests.types import ERROR_CODES, ParsedRow, RawLine, RowError, RowIdentity, SkippedRow
from deepinfer_cli.results.ordered import OrderedOutputs
from deepinfer_cli.results.records import Record
from deepinfer_cli.results.unordered import FOREIGN, KEPT, RETRYABLE, SEEN, DoneTable, check_of

_decode = json.JSONDecoder().decode  # several times as fast as json.loads on short texts
_FORCE_HINT = "`--resume --force` runs what changed again; another file with -o keeps both"


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

    def unordered(self, table: DoneTable) -> Comparison:
        """Against a table of outputs in order of completion, as far as the last row that is there."""
        end_index: int | None = None
        while table.num_seen < table.num_present:
            raw = self._next_line()
            if raw is None:
                end_index = self._refuse_or_drop_unseen(table)
                break
            self._compare_by_table(raw, self._parse(raw), table)
        for record in table.records(KEPT):
            count_kept(self._counters, self._identity_of(record), record, self._file_names)
        return Comparison(
            self._num_kept,
            self._num_retried,
            self._num_forced,
            self._num_missing,
            end_index,
            self._look_ahead(),
        )

    def _compare_by_table(self, raw: RawLine, row: ParsedRow, table: DoneTable) -> None:
        entry = table.take(raw.index)
        if entry is None or isinstance(row, SkippedRow):
            self._compare(raw, row, None if entry is None else table.find(raw.index), table.paths.output)
            return
        check, state = entry
        identity = row.identity
        id_json = (identity.id_json or "null").encode()
        expected = check_of(id_json, identity.request_hash, has_source=len(self._file_names) > 1)
        if check == expected and not state & (RETRYABLE | FOREIGN):
            table.keep(raw.index)
            self._num_kept += 1
            self._counters.num_read += 1
        elif self._force or (check == expected and not state & FOREIGN):
            self._num_retried += check == expected
            self._num_forced += check != expected
            self._spool.put(raw, self._tables[0].last, self._tables[1].last)
        else:
            self._compare(raw, row, table.find(raw.index), table.paths.output)

    def _identity_of(self, record: Record) -> RowIdentity:
        """Where the row stood, as its error says it."""
        line = number = 0
        if record.failed:
            line, _ = _line_and_message(_value(record.fields["error"]))
            name = _value(record.fields.get("source", b"{}")).get("file")
            number = self._file_names.index(name) if name in self._file_names else 0
        return RowIdentity(record.index, line, number, record.id_json.decode())

    def _refuse_or_drop_unseen(self, table: DoneTable) -> int | None:
        if not self._keep_going():
            return None
        record = min(table.records(without=SEEN), key=lambda r: r.index)
        if not self._force:
            self._refuse_removed(record, table.paths.output)
        return record.index

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
        return parse_row(self._parser, raw)

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
            why = self._difference(identity, record)
            if not why and not record.retryable:
                self._keep(identity, record)
                return
            if why and not self._force:
                raise InputError(f"--resume: {self._place(raw)}: {why}; {path} is left as it is", _FORCE_HINT)
            self._num_forced += bool(why)
            self._num_retried += not why
        self._spool.put(raw, self._tables[0].last, self._tables[1].last)

    def _difference(self, identity: RowIdentity, record: Record) -> str:
        """Why the record is no answer to the row; "" when it is one."""
        if record.id_json != (identity.id_json or "null").encode():
            here, there = _shown(identity.id_json or "null"), _shown(record.id_json.decode())
            return f"the row has id {here}, but its place in the output holds {there}"
        if record.settings != self._settings:
            return f"the row was written with settings {record.settings}, not {self._settings}"
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
            self._refuse_removed(record, outputs.paths.output)
        return next_index

    def _refuse_removed(self, record: Record, path: str) -> None:
        what = f"index {record.index}, id {_shown(record.id_json.decode())}"
        message = f"--resume: {path} holds a row ({what}) that the input does not have"
        raise InputError(f"{message}; the file is left as it is", _FORCE_HINT)

    def _place(self, raw: RawLine) -> str:
        place = f"line {raw.line}"
        return f"{self._file_names[raw.file_number]} {place}" if len(self._file_names) > 1 else place

    def _keep(self, identity: RowIdentity, record: Record) -> None:
        self._num_kept += 1
        self._counters.num_read += 1
        count_kept(self._counters, identity, record, self._file_names)


def _shown(id_json: str) -> str:
    return id_json if len(id_json) <= 80 else id_json[:77] + "..."


def _value(text: bytes) -> Any:
    return _decode(text.decode())


def _line_and_message(error: Mapping[str, Any]) -> tuple[int, str]:
    """Of an error row; in OpenAI's shape the line stands in the message."""
    message = str(error.get("message", ""))
    if "line" in error:
        return error["line"], message
    head, _, rest = message.partition(": ")
    number = head.removeprefix("line ")
    return (int(number), rest) if number.isdigit() else (0, message)


def count_kept(
    counters: Counters, identity: RowIdentity, record: Record, file_names: tuple[str, ...]
) -> None:
    """A row of an earlier attempt, counted as if this one had run it."""
    try:
        _count(counters, identity, record, file_names)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        where = f"the row with index {record.index} and id {_shown(record.id_json.decode())}"
        raise InputError(
            f"--resume: {where} is not as deepinfer writes it", "the file is left as it is"
        ) from None


def _count(counters: Counters, identity: RowIdentity, record: Record, file_names: tuple[str, ...]) -> None:
    fields = record.fields
    warnings = fields.get("warnings", b"[]")
    if warnings != b"[]":
        counters.by_warning.update([warning["code"] for warning in _value(warnings)])
    if record.failed:
        error = _value(fields["error"])
        code = error["code"] if error.get("code") in ERROR_CODES else "engine_error"
        counters.add_failure(identity, RowError(code, _line_and_message(error)[1]), file_names)
        if "usage" not in fields:
            return
    else:
        counters.num_ok += 1
        with suppress(RecursionError):  # `parsed` nests deeper than can be read here; nothing else is lost
            for sample in _value(fields.get("outputs") or fields["choices"]):
                counters.by_finish[sample["finish_reason"]] += 1
    usage = _value(fields["usage"])
    counters.num_kept_prompt_tokens += usage["prompt_tokens"]
    counters.num_kept_output_tokens += usage["completion_tokens"]
