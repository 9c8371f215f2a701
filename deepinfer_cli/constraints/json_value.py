"""One JSON text as a value: nothing that two readers could read differently is let through."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any


class JsonError(ValueError):
    """The text is not one JSON value, or an object has a key twice."""


class ExactFloat(float):
    """A number with a fraction or an exponent, that still knows its digits."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> ExactFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __repr__(self) -> str:
        return self.text


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise JsonError(f"an object has the key {twice!r} twice")
    return found


def _no_constant(text: str) -> Any:
    raise JsonError(f"{text} is not JSON")


_decode = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=ExactFloat, parse_constant=_no_constant
).decode


def parse_json(text: str) -> Any:
    """The value of an RFC 8259 text. Raises JsonError."""
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        raise JsonError(f"not JSON: {error.msg} at character {error.pos + 1}") from None


_SPACE_OR_STRING = re.compile(r'[ \t\n\r]+|"[^"\\]*(?:\\.[^"\\]*)*"')
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_LINE_LIKE = {0x2028: "\\u2028", 0x2029: "\\u2029", 0x85: "\\u0085"}


def one_line(text: str) -> str:
    """The same JSON value: keys, numbers and escapes as they were written, no white space around tokens.

    What some reader takes for a line end becomes an escape, and half a surrogate pair U+FFFD, as everywhere
    in output rows. `text` must be valid JSON.
    """
    return _SPACE_OR_STRING.sub(_token, text)


def _token(match: re.Match[str]) -> str:
    token = match[0]
    if token[0] != '"':
        return ""
    if not token.isascii():
        token = token.translate(_LINE_LIKE)
    return _without_halves(token) if "\\u" in token else token


def _without_halves(token: str) -> str:
    parts: list[str] = []
    high: str | None = None  # an escape of the first half of a pair that still lacks its second
    begin = 0
    for match in _ESCAPE.finditer(token):
        between, begin = token[begin : match.start()], match.end()
        code = int(match[1], 16) if match[1] else 0
        is_second = 0xDC00 <= code < 0xE000
        if high is not None and not (is_second and not between):
            parts.append("\\ufffd")
            high = None
        parts.append(between)
        if 0xD800 <= code < 0xDC00:
            high = match[0]
        elif is_second:
            parts.append("\\ufffd" if high is None else high + match[0])
            high = None
        else:
            parts.append(match[0])
    if high is not None:
        parts.append("\\ufffd")
    parts.append(token[begin:])
    return "".join(parts)
