"""The one loop: read, parse, render, submit; poll, assemble, write. Nothing here holds more than a bounded
number of rows, and every row that is read becomes exactly one row that is written.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from deepinfer_cli.config.spec import FailureLimit
from deepinfer_cli.constraints.cache import Result
from deepinfer_cli.constraints.types import ConstraintError
from deepinfer_cli.engine.constraints import CheckedEvent, CompiledEvent, ConstraintStage, refusal
from deepinfer_cli.engine.counters import Counters
from deepinfer_cli.engine.native import NativeEngine, NativeError, is_request_refusal
from deepinfer_cli.engine.prepare import PromptStage
from deepinfer_cli.engine.signals import StopRequest
from deepinfer_cli.engine.watchdog import Watchdog
from deepinfer_cli.errors import DeepInferError, InternalError
from deepinfer_cli.progress import Progress
from deepinfer_cli.requests.parser import RowParser
from deepinfer_cli.requests.types import (
    FailedRow,
    FieldError,
    ParsedRow,
    RawLine,
    RequestRow,
    RowError,
    RowIdentity,
    SkippedRow,
)
from deepinfer_cli.results.judged import Judged, is_checked, judge, row_error, row_warnings
from deepinfer_cli.results.sink import LineOutput
from deepinfer_cli.results.types import FinishedRequest, OpenRow
from deepinfer_cli.results.writer import MAX_OPEN_BYTES, RowWriter

if TYPE_CHECKING:
    from deepinfer_cli.constraints.validate import Verdict

_ADMIT_BURST = 64  # rows taken in before completions are looked at again
_POLL_BURST = 256
_WAIT_ENGINE_S = 0.1  # nothing can be admitted: wait for a completion
_WAIT_INPUT_S = 0.02  # requests run, but the input has nothing right now
_WAIT_IDLE_S = 0.2  # nothing runs: wait for input
_WAIT_COMPILING_S = 0.005  # the engine runs, and a constraint may be ready before it has anything
_PIPE_CHECK_S = 0.25
_NOT_A_ROWS_FAULT = (DeepInferError, OSError, NativeError)  # wherever it comes from
_SHARE_MIN_ROWS = 100  # a failure share means nothing before this many rows


class Reader(Protocol):
    """Where rows come from: requests/reader.py, or the rows that a resumed run kept aside."""

    @property
    def done(self) -> bool: ...
    def next_line(self, timeout: float) -> RawLine | None: ...
    def estimated_rows(self) -> int | None: ...


class RowShape(Protocol):
    """Builds output lines; results/assemble.py and results/openai_rows.py."""

    def ok(self, row: OpenRow, finished: FinishedRequest, judged: Sequence[Judged] = ()) -> str: ...
    def failed(
        self,
        identity: RowIdentity,
        error: RowError,
        warnings: tuple[str, ...] = (),
    ) -> str: ...
    def failed_texts(
        self, row: OpenRow, finished: FinishedRequest, judged: Sequence[Judged], error: RowError
    ) -> str: ...


class TooManyFailures(DeepInferError):
    """--max-failures was exceeded; what was written is valid."""


class BatchLoop:
    def __init__(
        self,
        *,
        reader: Reader,
        parser: RowParser,
        prompts: PromptStage,
        engine: NativeEngine,
        constraints: ConstraintStage,
        shape: RowShape,
        writer: RowWriter,
        output: LineOutput,
        counters: Counters,
        stop: StopRequest,
        progress: Progress,
        max_failures: FailureLimit | None,
        file_names: tuple[str, ...],
        max_open_bytes: int = MAX_OPEN_BYTES,
    ) -> None:
        self._reader = reader
        self._parser = parser
        self._prompts = prompts
        self._engine = engine
        self._constraints = constraints
        self._shape = shape
        self._writer = writer
        self._output = output
        self._counters = counters
        self._stop = stop
        self._progress = progress
        self._max_failures = max_failures
        self._file_names = file_names
        self._max_open_bytes = max_open_bytes
        self._open: dict[int, OpenRow] = {}  # requests in the engine, by ordinal
        self._stalled: tuple[OpenRow, Any] | None = None  # a request the engine had no room for
        self._compiling: dict[int, tuple[OpenRow, RequestRow, list[int]]] = {}  # wait for their constraint
        self._compiled: deque[tuple[OpenRow, Any]] = deque()  # have it, and wait for the engine
        self._checking: dict[int, tuple[OpenRow, FinishedRequest]] = {}  # their texts are being validated
        self._num_events = -1  # of the constraints, when the watchdog last heard of one
        self._queue_is_given_up = False  # after a stop request
        self._next_pipe_check = 0.0
        self._num_before = 0  # rows read but written elsewhere: by earlier stages and attempts
        self._watchdog: Watchdog | None = None
        self._writing = f"writing {output.name}"

    def run(self, watchdog: Watchdog) -> None:
        """Until the input is used up, or a stop was asked for and what runs is finished or given up."""
        self._num_before = self._num_expected() - self._writer.num_written
        self._watchdog = watchdog
        while True:
            self._beat(watchdog)
            if self._stop.requested:
                self._give_up_queue()
            more = self._admit()
            if self._open:
                self._collect(0.0 if more else self._patience())
            elif more:
                pass
            elif self._constraints.num_open:
                self._take_events(self._constraint_patience())
            elif self._reader.done or self._stop.requested:
                break
            else:
                self._take_line(_WAIT_IDLE_S)
            self._take_events(0.0)
            self._housekeeping()
            if self._stop.requested and self._stop.seconds_left == 0:
                break
        self.flush()
        self._counters.num_abandoned = self._writer.num_open
        if not self._counters.num_abandoned:
            self._check_complete()

    def _beat(self, watchdog: Watchdog) -> None:
        """Waiting for constraints and nothing else is no movement, until one is done."""
        num_events = self._constraints.num_events
        if self._open or not self._constraints.num_open or num_events != self._num_events:
            self._num_events = num_events
            watchdog.beat("reading or preparing rows", engine_is_busy=bool(self._open))

    def flush(self) -> None:
        self._now(self._writing)
        self._writer.flush()

    def _now(self, doing: str) -> None:
        if self._watchdog is not None:
            self._watchdog.now(doing)

    def facts(self) -> str:
        """For the report of a hang."""
        writer = self._writer
        return (
            f"rows: {self._counters.num_read} read, {self._counters.num_done} done, {len(self._open)} in the "
            f"engine, {len(self._compiling)} waiting for their constraint, {len(self._checking)} being "
            f"validated, {writer.num_held} finished and waiting for an earlier one, {writer.num_open} not "
            f"written ({writer.open_bytes} bytes); stop requested: {self._stop.requested}"
        )

    # ---- in ------------------------------------------------------------------------------------------------

    def _admit(self) -> bool:
        """Takes in rows while there are any; true when it stopped for another reason than having to wait."""
        for _ in range(_ADMIT_BURST):
            if self._stop.requested:
                return False
            if self._stalled is not None and not self._submit(*self._stalled):
                return False
            if self._compiled:
                self._submit(*self._compiled.popleft())
            elif not self._has_room() or not self._take_line(0.0):
                return False
        return True

    def _has_room(self) -> bool:
        return self._constraints.has_room and self._writer.has_room(self._max_open_bytes)

    def _take_line(self, timeout: float) -> bool:
        raw = self._reader.next_line(timeout)
        if raw is None:
            return False
        self._start_row(raw)
        return True

    def _give_up_queue(self) -> None:
        """What the engine has not begun is left to the next run."""
        if not self._queue_is_given_up:
            self._queue_is_given_up = True
            self._stalled = None
            self._constraints.give_up_compiling()
            self._compiling.clear()
            self._compiled.clear()
            self._engine.abort_unstarted()

    def _start_row(self, raw: RawLine) -> None:
        self._counters.num_read += 1
        parsed = parse_row(self._parser, raw)
        if isinstance(parsed, SkippedRow):
            if parsed.reason == "shard":
                self._counters.num_other_shard += 1
            else:
                self._counters.num_dropped_duplicates += 1
            return
        ordinal = self._writer.open_row(raw.num_bytes)
        if isinstance(parsed, FailedRow):
            self._fail(ordinal, parsed.identity, parsed.error, parsed.warnings)
            return
        warnings = parsed.warnings
        self._prepare(ordinal, parsed.identity, warnings, lambda: self._start_request(ordinal, parsed))

    def _prepare(
        self, ordinal: int, identity: RowIdentity, warnings: tuple[str, ...], work: Callable[[], None]
    ) -> None:
        """Whatever `work` fails with is this row's loss and nobody else's."""
        try:
            work()
        except FieldError as error:
            self._fail(ordinal, identity, error.error, warnings)
        except NativeError as error:
            if not is_request_refusal(error):
                raise
            self._fail(ordinal, identity, _unexpected("preparing it", error), warnings)
        except _NOT_A_ROWS_FAULT:
            raise
        except Exception as error:  # a tokenizer's, say
            self._fail(ordinal, identity, _unexpected("preparing it", error), warnings)

    def _start_request(self, ordinal: int, row: RequestRow) -> None:
        token_ids, warnings = self._prompts.token_ids(row)
        params = row.params
        if len(token_ids) > self._counters.longest_prompt:
            self._counters.longest_prompt = len(token_ids)
            self._counters.longest_prompt_line = row.identity.line
        held = row.identity.held_bytes + self._prompts.held_bytes(params, len(token_ids))
        self._writer.grow_row(ordinal, held)
        url = row.identity.envelope_url
        open_row = OpenRow(
            identity=row.identity,
            seed=row.seed,
            warnings=warnings,
            is_chat=row.prompt.messages is not None or row.prompt.chat if url is None else "chat" in url,
            wants_logprobs=params.top_logprobs >= 0,
            wants_prompt_logprobs=params.prompt_logprobs >= 0,
            wants_token_ids=params.return_token_ids,
            stop_token_ids=frozenset(params.stop_token_ids),
            ordinal=ordinal,
        )
        if row.constraint is None:
            self._submit(open_row, self._engine.request(ordinal, token_ids, params, row.seed))
            return
        self._writer.grow_row(ordinal, len(row.constraint.source))
        known = self._constraints.compile(ordinal, row.constraint)
        if known is None:
            self._compiling[ordinal] = (open_row, row, token_ids)
        else:
            self._take_constraint(known, open_row, row, token_ids)

    def _take_constraint(
        self, found: Result | Exception, open_row: OpenRow, row: RequestRow, token_ids: list[int]
    ) -> None:
        """The row goes to the engine with its constraint, or becomes an error row without one."""
        assert row.constraint is not None
        if isinstance(found, ConstraintError):
            error = refusal(found, row.constraint)
            self._fail(open_row.ordinal, row.identity, error, open_row.warnings)
            return
        if isinstance(found, Exception):
            raise found
        open_row = replace(
            open_row, check=found.prepared.check, not_enforced=tuple(found.prepared.not_enforced)
        )
        request = self._engine.request(
            open_row.ordinal,
            token_ids,
            row.params,
            row.seed,
            constraint=found.template,
            constraint_after=self._constraints.after,
        )
        self._compiled.append((open_row, request))

    def _take_events(self, timeout: float) -> None:
        """What constraints have come to: rows that can go in, rows that can be written."""
        if not self._constraints.num_open:
            return
        self._now("waiting for constraints to be compiled or texts to be validated")
        for event in self._constraints.events(timeout):
            if isinstance(event, CheckedEvent):
                self._finish_checked(*self._checking.pop(event.ordinal), event.verdicts)
            else:
                self._take_compiled(event)

    def _take_compiled(self, event: CompiledEvent) -> None:
        open_row, row, token_ids = self._compiling.pop(event.ordinal)
        self._prepare(
            event.ordinal,
            row.identity,
            open_row.warnings,
            lambda: self._take_constraint(event.result, open_row, row, token_ids),
        )

    def _submit(self, row: OpenRow, request: Any) -> bool:
        self._stalled = None
        try:
            if not self._engine.try_submit(request):
                self._stalled = (row, request)
                return False
        except NativeError as error:
            if not is_request_refusal(error):
                raise
            refusal = RowError("engine_error", str(error.args[0]))
            self._fail(row.ordinal, row.identity, refusal, row.warnings)
            return True
        self._open[row.ordinal] = row
        return True

    # ---- out -----------------------------------------------------------------------------------------------

    def _patience(self) -> float:
        if self._stop.requested:
            return min(_WAIT_ENGINE_S, self._stop.seconds_left)
        if self._constraints.num_compiling or not self._constraints.has_room:
            return _WAIT_COMPILING_S
        waits_for_input = self._stalled is None and not self._reader.done and self._has_room()
        return _WAIT_INPUT_S if waits_for_input else _WAIT_ENGINE_S

    def _constraint_patience(self) -> float:
        if self._stop.requested:
            return min(_WAIT_ENGINE_S, self._stop.seconds_left)
        return _WAIT_IDLE_S if self._reader.done or not self._has_room() else _WAIT_INPUT_S

    def _collect(self, timeout: float) -> None:
        self._now("waiting for the engine")
        for finished in self._engine.poll(_POLL_BURST, timeout):
            self._finish(self._open.pop(finished.id), finished)

    def _finish(self, row: OpenRow, finished: FinishedRequest) -> None:
        counters = self._counters
        counters.num_prompt_tokens += finished.num_prompt_tokens
        counters.num_cached_tokens += finished.num_cached_tokens
        counters.num_preemptions += finished.num_preemptions
        samples = finished.samples
        counters.num_output_tokens += sum(len(sample.tokens) for sample in samples)
        error: RowError | None = None
        if finished.error:
            error = RowError("engine_error", finished.error, retryable=finished.error_retryable)
        elif any(sample.finish_reason == "aborted" for sample in samples):
            if self._stop.requested:
                return  # it stays open: not written, and left to the next run
            error = RowError("aborted", "the row was given up before it finished", retryable=True)
        elif any(sample.finish_reason == "error" for sample in samples):
            error = RowError("engine_error", "the engine ended this row with an error")
        if error is not None:
            self._fail(row.ordinal, row.identity, error, row.warnings)
            return
        if row.check is None:
            self._write_result(row, finished, ())
            return
        texts = [self._constraints.answer(sample) for sample in samples if is_checked(sample)]
        if texts:
            self._checking[row.ordinal] = (row, finished)
            self._constraints.check(row.ordinal, row.check, texts)
        else:
            self._finish_checked(row, finished, ())

    def _finish_checked(self, row: OpenRow, finished: FinishedRequest, verdicts: Sequence[Verdict]) -> None:
        """`verdicts`: of the samples that are checked, in their order."""
        rest = iter(verdicts)
        judged = [judge(row, s, next(rest) if is_checked(s) else None) for s in finished.samples]
        self._constraints.counts.add(judged)
        self._write_result(row, finished, judged)

    def _write_result(self, row: OpenRow, finished: FinishedRequest, judged: Sequence[Judged]) -> None:
        error = row_error(judged)
        try:
            if error is None:
                line = self._shape.ok(row, finished, judged)
            else:
                line = self._shape.failed_texts(row, finished, judged, error)
        except _NOT_A_ROWS_FAULT:
            raise
        except Exception as unexpected:
            what = _unexpected("writing its result", unexpected)
            self._fail(row.ordinal, row.identity, what, row.warnings)
            return
        self._counters.by_warning.update(row_warnings(row, judged))
        if error is not None:
            self._write_failed(row.ordinal, row.identity, error, line)
            return
        self._counters.num_ok += 1
        self._counters.by_finish.update(sample.finish_reason for sample in finished.samples)
        self._write(row.ordinal, line, failed=False)

    def _fail(
        self,
        ordinal: int,
        identity: RowIdentity,
        error: RowError,
        warnings: tuple[str, ...],
    ) -> None:
        self._counters.by_warning.update(warnings)
        self._write_failed(ordinal, identity, error, self._shape.failed(identity, error, warnings))

    def _write_failed(self, ordinal: int, identity: RowIdentity, error: RowError, line: str) -> None:
        self._counters.add_failure(identity, error, self._file_names)
        self._write(ordinal, line, failed=True)
        self._check_failures(at_end=False)

    def _write(self, ordinal: int, line: str, *, failed: bool) -> None:
        self._now(self._writing)
        self._writer.close_row(ordinal, line, failed=failed)

    # ---- around --------------------------------------------------------------------------------------------

    def _housekeeping(self) -> None:
        self.flush()
        progress = self._progress
        progress.done = self._counters.num_done
        progress.failed = self._counters.num_failed
        progress.running = self._engine.num_running()
        progress.prompt_tokens = self._counters.num_prompt_tokens
        progress.output_tokens = self._counters.num_output_tokens
        num_rows = self._reader.estimated_rows()
        if num_rows is not None:
            progress.total = num_rows - self._counters.num_other_shard - self._counters.num_dropped_duplicates
        progress.tick()
        if self._output.is_pipe and time.monotonic() >= self._next_pipe_check:
            self._next_pipe_check = time.monotonic() + _PIPE_CHECK_S
            if _is_closed(self._output.fd):
                raise BrokenPipeError("nobody reads the output any more")

    def _check_failures(self, *, at_end: bool) -> None:
        limit = self._max_failures
        if limit is None:
            return
        failed, done = self._counters.num_failed, self._counters.num_done
        if limit.count is not None:
            exceeded = failed > limit.count
        else:
            exceeded = (at_end or done >= _SHARE_MIN_ROWS) and failed > (limit.share or 0.0) * done
        if exceeded:
            self.flush()
            raise TooManyFailures(
                f"{failed:,} of {done:,} rows failed, more than --max-failures {limit} allows",
                "the rows before this are written; fix the failing ones or raise the limit",
            )

    def _check_complete(self) -> None:
        self._check_failures(at_end=True)
        expected = self._num_expected() - self._num_before
        if self._writer.num_written != expected:
            raise InternalError(
                f"{expected:,} rows were read but {self._writer.num_written:,} written", "please report this"
            )

    def _num_expected(self) -> int:
        """Output rows of all rows read so far, in earlier stages and attempts too."""
        c = self._counters
        return c.num_read - c.num_other_shard - c.num_dropped_duplicates


def parse_row(parser: RowParser, raw: RawLine) -> ParsedRow:
    """The row, also when the parser itself fails: that is this row's loss and nobody else's."""
    try:
        return parser.parse(raw)
    except _NOT_A_ROWS_FAULT:
        raise
    except Exception as error:
        return FailedRow(parser.identity(raw), _unexpected("reading it", error))


def _unexpected(doing: str, error: Exception) -> RowError:
    out_of_memory = isinstance(error, MemoryError)
    what = "out of memory" if out_of_memory else f"{type(error).__name__}: {error}"
    return RowError("engine_error", f"{doing} failed: {what}"[:1000], retryable=out_of_memory)


def _is_closed(fd: int) -> bool:
    """Whether the other end of a pipe is gone; writing would say so only with the next row."""
    poller = select.poll()
    poller.register(fd, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0))
