"""A look at a pattern's text: where its constructs stand, and the `\\p{...}` that Python's `re` has not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from deepinfer_cli.constraints import charset
from deepinfer_cli.constraints.types import ConstraintError

MAX_PATTERN_BYTES: Final = 64 << 10
MAX_GROUP_DEPTH: Final = 100
_FIRST_STAND_IN: Final = 0xF0000  # private use: a stand-in for each \p{...} while `re` parses


@dataclass(frozen=True, slots=True)
class Token:
    position: int  # of its first character
    text: str  # "(?=", "\\b", "^", "++", ...; literal characters are left out
    in_class: bool


@dataclass(frozen=True, slots=True)
class Property:
    """A general category that stands for one character of the pattern."""

    category: str  # "Lu"
    negated: bool


@dataclass(frozen=True, slots=True)
class Scanned:
    tokens: tuple[Token, ...]
    parsable: str  # the pattern with a stand-in for each \p{...}
    properties: dict[int, Property]  # by the stand-in's code point

    def position(self, texts: tuple[str, ...], *, inside: bool = False) -> int | None:
        """Where the first of `texts` stands; `inside` passes over the pattern's two ends."""
        last = len(self.parsable) - 1
        found = [t.position for t in self.tokens if t.text in texts and not t.in_class]
        inner = [p for p in found if 0 < p < last]
        return next(iter(inner or found if inside else found), None)


def _group_opening(pattern: str, at: int) -> str:
    for text in ("(?<=", "(?<!", "(?P=", "(?P<", "(?=", "(?!", "(?>", "(?("):
        if pattern.startswith(text, at):
            return text
    return "("


def _quantifier_end(pattern: str, at: int) -> int:
    """Behind `*`, `+`, `?` or `{m,n}` at `at`, or `at` when there is none."""
    if pattern[at] in "*+?":
        return at + 1
    end = pattern.find("}", at)
    if pattern[at] != "{" or end < 0:
        return at
    low, _, high = pattern[at + 1 : end].partition(",")
    is_count = (low or high) and all(part == "" or part.isdecimal() for part in (low, high))
    return end + 1 if is_count else at


def _escape(pattern: str, at: int) -> str:
    """The escape at `at`, with its braces or its digits."""
    if at + 1 >= len(pattern):
        return "\\"
    letter = pattern[at + 1]
    if letter in "pPN" and pattern.startswith("{", at + 2):
        end = pattern.find("}", at)
        return pattern[at : end + 1] if end >= 0 else pattern[at : at + 2]
    if letter in "pP":
        return pattern[at : at + 3]
    return pattern[at : at + 2]


def _walk(pattern: str) -> Iterator[Token]:
    at, depth, in_class = 0, 0, False
    while at < len(pattern):
        char = pattern[at]
        text = ""
        width = 1
        if char == "\\":
            text = _escape(pattern, at)
            width = len(text)
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            text = char
            width = 2 if pattern.startswith("[^", at) else 1
            if pattern.startswith("]", at + width):  # there a bracket is a member
                width += 1
        elif char == "(":
            text = _group_opening(pattern, at)
            width = len(text)
            depth += 1
            if depth > MAX_GROUP_DEPTH:
                raise ConstraintError("bad_schema", f"groups nest deeper than {MAX_GROUP_DEPTH} levels")
        elif char == ")":
            depth -= 1
        elif char in "^$":
            text = char
        elif char in "*+?{":
            end = _quantifier_end(pattern, at)
            width = max(end - at, 1)
            if end > at and pattern.startswith("+", end):
                text, width = "possessive", width + 1
        if text:
            yield Token(at, text, in_class and char != "[")
        at += width


def _property(token: Token) -> Property:
    written = token.text[2:].strip("{}")
    negated = token.text[1] == "P"
    if written.startswith("^"):
        negated, written = not negated, written[1:]
    key, equals, value = written.partition("=")
    if equals and key.strip().lower() in ("gc", "general_category"):
        written = value
    name = charset.category_name(written)
    if name is None:
        raise ConstraintError(
            "unsupported_schema",
            f"{token.text} at position {token.position} is not enforced; categories such as \\p{{Lu}} are",
        )
    return Property(name, negated)


def scan(pattern: str) -> Scanned:
    tokens = tuple(_walk(pattern))
    pieces: list[str] = []
    properties: dict[int, Property] = {}
    done, stand_in = 0, _FIRST_STAND_IN
    for token in tokens:
        if token.text[:2] not in ("\\p", "\\P"):
            continue
        while chr(stand_in) in pattern:
            stand_in += 1
        properties[stand_in] = _property(token)
        pieces += [pattern[done : token.position], chr(stand_in)]
        done = token.position + len(token.text)
        stand_in += 1
    return Scanned(tokens, "".join(pieces) + pattern[done:], properties)


@lru_cache(maxsize=64)
def _python_ranges(prop: Property, *, in_class: bool) -> str:
    ranges = list(charset.category_ranges(prop.category))
    if prop.negated:
        ranges = charset.complement(ranges)
    content = "".join(
        _in_class(low) if low == high else f"{_in_class(low)}-{_in_class(high)}" for low, high in ranges
    )
    return content if in_class else f"[{content}]"


def _in_class(code: int) -> str:
    """As short as possible: `re` reads a category's hundreds of ranges one character at a time."""
    return chr(code) if code > 0x7F else f"\\x{code:02X}"


def for_python(pattern: str) -> str:
    """The pattern as Python's `re` takes it, with the characters of each \\p{...} written out."""
    pieces: list[str] = []
    done = 0
    for token in scan(pattern).tokens:
        if token.text[:2] in ("\\p", "\\P"):
            pieces += [
                pattern[done : token.position],
                _python_ranges(_property(token), in_class=token.in_class),
            ]
            done = token.position + len(token.text)
    return "".join(pieces) + pattern[done:]
