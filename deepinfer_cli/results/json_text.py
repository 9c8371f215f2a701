"""JSON text as our rows have it: RFC 8259, raw UTF-8, and nothing that some reader takes for a line end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from json import encoder

# The encoder behind json.dumps(ensure_ascii=False): quotes one string.
_quote: Callable[[str], str] = encoder.encode_basestring
_LINE_LIKE = {0x2028: "\\u2028", 0x2029: "\\u2029", 0x85: "\\u0085"}
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def json_string(text: str) -> str:
    quoted = _quote(text)
    if quoted.isascii():
        return quoted
    quoted = quoted.translate(_LINE_LIKE)
    try:
        quoted.encode()
    except UnicodeEncodeError:  # a lone surrogate cannot be written; nothing we make has one
        quoted = quoted.translate(_SURROGATES)
    return quoted


def json_float32(value: float) -> str:
    """Nine digits give back the same float32; what JSON has no number for becomes null."""
    if value == 0.0 or not math.isfinite(value):
        return repr(value) if value == 0.0 else "null"  # -0 would be read back as the integer 0
    return f"{value:.9g}"


def json_value(value: object) -> str:
    """Any plain value, for the rare parts of a row."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text if text.isascii() else text.translate(_LINE_LIKE)
