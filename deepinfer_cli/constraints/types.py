"""The nouns of constraints. Plain data, picklable; nothing here needs a model or the engine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

ErrorCode = Literal["bad_schema", "unsupported_schema", "bad_param"]


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """What a row or the run asks for: of the right types, not yet looked into."""

    kind: str  # one of config.values.CONSTRAINT_KINDS
    source: str  # exact text: the schema's JSON, the pattern, the grammar, the choices as a JSON array
    syntax: str = "auto"  # of a grammar: a config.settings.GrammarSyntax
    field: str = "constraint"  # where it stood, for messages; no part of the key

    @property
    def key(self) -> bytes:
        """16 bytes that are the same for the same constraint, wherever it stood."""
        parts = (part.encode("utf-8", "surrogatepass") for part in (self.kind, self.syntax, self.source))
        return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class ConstraintOptions:
    """What the run says about all of its constraints."""

    json_whitespace: str = "bounded"  # a config.settings.JsonWhitespace
    best_effort: bool = False  # what cannot be enforced exactly is left out and listed


class ConstraintError(Exception):
    """A constraint that is not run. `pointer` is a JSON pointer into the schema; grammars and patterns name
    the place in the message."""

    def __init__(self, code: ErrorCode, message: str, pointer: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.pointer = pointer

    def __reduce__(self) -> tuple[type[ConstraintError], tuple[ErrorCode, str, str | None]]:
        return type(self), (self.code, self.message, self.pointer)


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """What a finished text is checked against, in another process and by other code than the engine's."""

    kind: str  # as of a ConstraintSpec
    source: str
    syntax: str = "auto"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A constraint that has been checked and translated."""

    grammar: str  # what the engine compiles: its grammar JSON, or Lark text
    check: CheckSpec
    not_enforced: tuple[str, ...] = ()  # under best_effort: JSON pointer of each keyword that was left out
