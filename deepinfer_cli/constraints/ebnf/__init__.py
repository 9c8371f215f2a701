"""Grammars in four notations: GBNF, W3C EBNF, ISO 14977 and Lark.

The first three are read here and translated so that the engine takes exactly their texts; Lark is the
engine's own notation and passes through once it has been looked over.
"""

from __future__ import annotations

import re
from functools import lru_cache

from deepinfer_cli.constraints.ebnf import detect, emit, exact, gbnf, iso, lark, merge, w3c
from deepinfer_cli.constraints.ebnf.checks import check
from deepinfer_cli.constraints.ebnf.grammar import MAX_TEXT_BYTES, Grammar, Source
from deepinfer_cli.constraints.ebnf.recogniser import Recogniser, StepLimit
from deepinfer_cli.constraints.types import ConstraintError

__all__ = ["StepLimit", "read", "recognise", "syntax_of", "translate"]

_PARSERS = {"gbnf": gbnf.parse, "w3c": w3c.parse, "iso": iso.parse}
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_NUM_KEPT = 8  # grammars of recognise


def translate(text: str, syntax: str) -> str:
    """What the engine compiles. Raises ConstraintError, which names line and column."""
    if syntax_of(text, syntax) == "lark":
        return lark.check(text)
    grammar = read(text, syntax)
    try:
        return emit.emit(merge.merged(grammar))
    except merge.OutOfWork:
        return emit.emit(exact.char_exact(grammar))


def recognise(grammar: str, syntax: str, text: str) -> bool:
    """Is the text of the grammar's language? Raises ConstraintError for a bad grammar and StepLimit, a
    TimeoutError, for a text that takes too long. For one thread of a process.

    Lark is answered by the engine itself, byte by byte; the others by code of their own.
    """
    if syntax_of(grammar, syntax) == "lark":
        return lark.matches(grammar, text)
    return _recogniser(grammar, syntax).matches(text)


def syntax_of(text: str, syntax: str) -> str:
    """The notation, also where `auto` is asked for."""
    if len(text) > MAX_TEXT_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        raise ConstraintError("unsupported_schema", f"the grammar is longer than {MAX_TEXT_BYTES:,} bytes")
    odd = _NO_TEXT.search(text)
    if odd is not None:
        what = "a NUL" if odd[0] == "\0" else "a lone surrogate"
        Source(text).refuse(odd.start(), f"{what} is no text")
    return detect.detect(text) if syntax == "auto" else syntax


def read(text: str, syntax: str) -> Grammar:
    """A checked grammar; not for Lark."""
    return check(_PARSERS[syntax_of(text, syntax)](text))


@lru_cache(maxsize=_NUM_KEPT)
def _recogniser(grammar: str, syntax: str) -> Recogniser:
    return Recogniser(read(grammar, syntax))
