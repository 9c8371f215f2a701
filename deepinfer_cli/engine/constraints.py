"""Constraints around the engine: compiled before a row goes in, checked when its text comes out.

Both happen beside the loop, which never waits for them while it has anything else to do: compiling on threads
(the constraint engine holds no lock of the interpreter), checking in processes. Rows overtake one that waits;
its place in the output stays its own.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepinfer_cli.constraints.cache import ConstraintCompiler, Result
from deepinfer_cli.constraints.types import CheckSpec, ConstraintError, ConstraintSpec
from deepinfer_cli.requests.types import FieldError, RequestRow, RowError
from deepinfer_cli.results.judged import Judged
from deepinfer_cli.results.types import Sample

if TYPE_CHECKING:
    from deepinfer_cli.constraints.pool import CheckPool
    from deepinfer_cli.constraints.validate import Verdict

MAX_COMPILING = 256  # rows that wait for their constraint
_MOST_THREADS = 4
_CLOSE_S = 5.0  # for a compilation that is under way when the run ends


@dataclass(slots=True)
class ConstraintCounts:
    """For the summary and OUT.run.json."""

    num_rows: int = 0  # rows that asked for a constraint
    num_compiled: int = 0  # distinct constraints, refused ones included
    compile_seconds: float = 0.0  # processor time of this, on all threads
    num_truncated: int = 0  # outputs
    num_not_applied: int = 0
    num_invalid: int = 0  # those that could not be checked included
    num_timeouts: int = 0  # rows
    why_not_native: str | None = None  # the engine is called through Python

    def add(self, judged: Sequence[Judged]) -> None:
        """The outputs of a row."""
        codes = [output.error.code for output in judged if output.error is not None]
        num_truncated, num_not_applied = map(codes.count, ("constraint_truncated", "constraint_not_applied"))
        self.num_truncated += num_truncated
        self.num_not_applied += num_not_applied
        self.num_invalid += len(codes) - num_truncated - num_not_applied
        self.num_timeouts += any(output.is_unchecked for output in judged)

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": self.num_rows,
            "compiled": self.num_compiled,
            "compile_cpu_s": round(self.compile_seconds, 3),
            "truncated": self.num_truncated,
            "not_applied": self.num_not_applied,
            "invalid": self.num_invalid,
            "validation_timeouts": self.num_timeouts,
            "python_road": self.why_not_native,
        }

    def __str__(self) -> str:
        text = (
            f"constraints: {self.num_rows:,} rows, {self.num_compiled:,} compiled in "
            f"{self.compile_seconds:.1f} s of processor time; {self.num_truncated:,} outputs truncated, "
            f"{self.num_invalid:,} invalid"
        )
        if self.num_not_applied:
            text += f", {self.num_not_applied:,} not under their constraint"
        if self.num_timeouts:
            text += f", {self.num_timeouts:,} rows not checked in time"
        return f"{text}; through Python: {self.why_not_native}" if self.why_not_native else text


@dataclass(frozen=True, slots=True)
class CompiledEvent:
    ordinal: int
    result: Result | Exception  # an exception is a defect of ours, and the row's loss
    seconds: float  # processor time of this thread


@dataclass(frozen=True, slots=True)
class CheckedEvent:
    ordinal: int
    verdicts: Sequence[Verdict]


Event = CompiledEvent | CheckedEvent


class ConstraintStage:
    """Belongs to the loop's thread. Costs nothing until the first row with a constraint."""

    def __init__(
        self,
        compiler: ConstraintCompiler,
        counts: ConstraintCounts,
        *,
        num_threads: int,
        after: Sequence[int] = (),
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        """after: ids in an output from which on its constraint holds. decode: text of ids, needed then."""
        self._compiler = compiler
        self.counts = counts
        self.after = tuple(after)
        self._decode = decode
        self._max_threads = max(1, min(_MOST_THREADS, num_threads))
        self._jobs: queue.SimpleQueue[tuple[int, ConstraintSpec] | None] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._checks: CheckPool | None = None
        self._given_up = False
        self.num_compiling = 0
        self.num_checking = 0
        self.num_events = 0  # ever; moves while work is done

    @property
    def num_open(self) -> int:
        return self.num_compiling + self.num_checking

    @property
    def has_room(self) -> bool:
        """Whether another row may be read."""
        return self.num_compiling < MAX_COMPILING and (self._checks is None or self._checks.has_room)

    # ---- before the engine ---------------------------------------------------------------------------------

    def compile(self, ordinal: int, spec: ConstraintSpec) -> Result | None:
        """The result if it is known, else None: an event will bring it."""
        self.counts.num_rows += 1
        known = self._compiler.peek(spec)
        if known is not None:
            return known
        self.num_compiling += 1
        self._jobs.put((ordinal, spec))
        if len(self._threads) < min(self._max_threads, self.num_compiling):
            thread = threading.Thread(target=self._compile, name="constraints", daemon=True)
            self._threads.append(thread)
            thread.start()
        return None

    def _compile(self) -> None:
        while (job := self._jobs.get()) is not None:
            ordinal, spec = job
            if self._given_up:
                continue
            began = time.thread_time()
            try:
                result: Result | Exception = self._compiler.get(spec)
            except Exception as error:
                result = error
            self._events.put(CompiledEvent(ordinal, result, time.thread_time() - began))

    def give_up_compiling(self) -> None:
        """Rows that wait are left to another run."""
        self._given_up = True
        self.num_compiling = 0

    # ---- behind it -----------------------------------------------------------------------------------------

    def check(self, ordinal: int, spec: CheckSpec, texts: Sequence[str]) -> None:
        """All texts of a row; an event brings the verdicts."""
        if self._checks is None:
            from deepinfer_cli.constraints.pool import CheckPool

            self._checks = CheckPool(deliver=lambda n, v: self._events.put(CheckedEvent(n, v)))
        self.num_checking += 1
        self._checks.submit(ordinal, spec, texts)

    def answer(self, sample: Sample) -> str:
        """The part of a text that its constraint is about: what follows the thinking."""
        if not self.after or self._decode is None:
            return sample.text
        tokens, after = sample.tokens, self.after
        for end in range(len(after), len(tokens) + 1):
            if tuple(tokens[end - len(after) : end]) == after:
                return sample.text[len(self._decode(tokens[:end])) :]
        return sample.text

    # ---- both ----------------------------------------------------------------------------------------------

    def events(self, timeout: float = 0.0) -> list[Event]:
        """All that has happened; waits for the first if asked to."""
        found: list[Event] = []
        try:
            event = self._events.get(timeout > 0.0, timeout if timeout > 0.0 else None)
            while True:
                if isinstance(event, CheckedEvent):
                    self.num_checking -= 1
                    found.append(event)
                elif not self._given_up:
                    self._count(event)
                    found.append(event)
                event = self._events.get(False)
        except queue.Empty:
            pass
        self.num_events += len(found)
        return found

    def _count(self, event: CompiledEvent) -> None:
        self.num_compiling -= 1
        self.counts.num_compiled = self._compiler.num_made
        self.counts.why_not_native = self._compiler.why_not_native
        self.counts.compile_seconds += event.seconds

    def close(self) -> None:
        self._given_up = True
        for _ in self._threads:
            self._jobs.put(None)
        if self._checks is not None:
            self._checks.close()
        deadline = time.monotonic() + _CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def row_template(compiler: ConstraintCompiler, row: RequestRow) -> Any:
    """What the row's request gets, compiled here and now; None without a constraint. Raises FieldError."""
    if row.constraint is None:
        return None
    found = compiler.get(row.constraint)
    if isinstance(found, ConstraintError):
        raise FieldError.of(refusal(found, row.constraint))
    return found.template


def refusal(error: ConstraintError, spec: ConstraintSpec) -> RowError:
    """The error row of a constraint that is not run."""
    where = spec.field if error.pointer is None else f"{spec.field}, at {error.pointer or 'its root'}"
    return RowError(error.code, f"{where}: {error.message}", spec.field)
