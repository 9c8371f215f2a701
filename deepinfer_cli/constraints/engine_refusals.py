"""What the engine refuses after all: which part of the schema it is, and what it says in our words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from deepinfer_cli.constraints.types import ConstraintError, ConstraintOptions
from deepinfer_cli.errors import in_short

if TYPE_CHECKING:
    from deepinfer_cli.constraints.json_schema import Writer

_MAX_SECONDS: Final = 0.3  # for looking
# (words of the engine, keywords that they are about, what is said instead)
_KNOWN: Final = (
    ("oneOf constraints", ("oneOf",), "oneOf is not enforced: its parts cannot be told apart for certain"),
    ("patternProperty regexes", ("patternProperties",), "patterns of keys that may overlap are not enforced"),
    ("min/maxProperties only", ("minProperties", "maxProperties"), "counts of keys are not enforced here"),
    ("circular references", ("$ref", "$dynamicRef"), "a circular $ref with other keywords is not enforced"),
    ("determine if regex", ("pattern", "format"), "the pattern is too large to tell whether any text fits"),
    ("Current row has", (), "the schema has too many alternatives in one place"),
    ("schema too large", (), "the schema is too large once its parts are combined"),
    ("intersection stack", (), "the schema's parts combine too deep"),
)


def complaint(grammar: str) -> str | None:
    """The engine's reason not to compile it."""
    import llguidance

    return llguidance.LLMatcher.validate_grammar(grammar, None) or None


def in_our_words(error: ConstraintError, pointer: str | None) -> ConstraintError:
    for words, _, ours in _KNOWN:
        if words in error.message:
            return ConstraintError("unsupported_schema", ours, pointer)
    _, found, rest = error.message.partition("Unsatisfiable schema")
    if found:
        return ConstraintError("bad_schema", in_short(f"no value fits the schema{rest}"), pointer)
    return ConstraintError(error.code, in_short(error.message), pointer)


def place(writer: Writer, options: ConstraintOptions) -> str | None:
    """JSON pointer of the smallest part that the engine refuses, with the keyword where that is known."""
    from deepinfer_cli.constraints.json_schema import Writer

    until = time.monotonic() + _MAX_SECONDS
    parts = sorted(writer.visited.items(), key=lambda part: -part[0].count("/"))
    for pointer, node in parts:
        if time.monotonic() > until:
            return None
        if "$ref" in node and len(node) == 1:
            continue
        alone = Writer(writer.document, best_effort=writer.best_effort, dropped=writer.dropped)
        try:
            message = complaint(alone.grammar(options, (node, pointer)))
        except ConstraintError:
            continue
        if message is not None:
            keys = next((keys for words, keys, _ in _KNOWN if words in message), ())
            key = next((key for key in keys if key in node), None)
            return pointer if key is None else f"{pointer}/{key}"
    return None


def may_be_dropped(pointer: str) -> bool:
    keyword = pointer.rpartition("/")[2]
    return any(keyword in keys for _, keys, _ in _KNOWN)
