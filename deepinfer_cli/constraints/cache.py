"""Constraints that are ready for requests, remembered by what they say: rows mostly ask for the same few."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Protocol

from deepinfer_cli.constraints.front import explained, prepare
from deepinfer_cli.constraints.types import ConstraintError, ConstraintOptions, ConstraintSpec, Prepared

MAX_KEPT = 512  # constraints
MAX_KEPT_BYTES = 64 << 20  # of their texts


class Backend(Protocol):
    """constraints/backend.py."""

    def compile(self, grammar: str) -> Any: ...
    @property
    def why_not_native(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Compiled:
    prepared: Prepared
    template: Any  # for Request.constraint

    @property
    def num_bytes(self) -> int:
        return len(self.prepared.grammar) + len(self.prepared.check.source)


Result = Compiled | ConstraintError


class ConstraintCompiler:
    """Any thread may ask; two that ask for the same constraint at once compile it once. Refusals are
    remembered too."""

    def __init__(self, backend: Backend, options: ConstraintOptions, *, max_kept: int = MAX_KEPT) -> None:
        self._backend = backend
        self._options = options
        self._max_kept = max_kept
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Result] = OrderedDict()  # the least recently used first
        self._num_bytes = 0
        self._being_made: dict[bytes, threading.Event] = {}
        self.num_made = 0  # compiled or refused, those that were forgotten included

    @property
    def why_not_native(self) -> str | None:
        """Why the engine is called through Python, where it is."""
        return self._backend.why_not_native

    def peek(self, spec: ConstraintSpec) -> Result | None:
        """What is known already. Never waits for a compilation."""
        with self._lock:
            return self._find(spec.key)

    def get(self, spec: ConstraintSpec) -> Result:
        key = spec.key
        while True:
            with self._lock:
                found = self._find(key)
                if found is not None:
                    return found
                other = self._being_made.get(key)
                if other is None:
                    done = self._being_made[key] = threading.Event()
                    break
            other.wait()
        try:
            result = self._make(spec)
            with self._lock:
                self._keep(key, result)
                self.num_made += 1
        finally:
            with self._lock:
                del self._being_made[key]
            done.set()
        return result

    def _make(self, spec: ConstraintSpec) -> Result:
        try:
            prepared = prepare(spec, self._options)
        except ConstraintError as error:
            return error
        try:
            return Compiled(prepared, self._backend.compile(prepared.grammar))
        except ConstraintError as error:
            return explained(spec, self._options, error)

    def _find(self, key: bytes) -> Result | None:
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def _keep(self, key: bytes, result: Result) -> None:
        self._known[key] = result
        self._num_bytes += _size(result)
        while len(self._known) > self._max_kept or (
            self._num_bytes > MAX_KEPT_BYTES and len(self._known) > 1
        ):
            _, oldest = self._known.popitem(last=False)
            self._num_bytes -= _size(oldest)


def _size(result: Result) -> int:
    return result.num_bytes if isinstance(result, Compiled) else len(result.message)
