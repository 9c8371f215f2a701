"""Values of settings: checked JSON values, and the text of command line and environment.

`check_value` is the one place that knows types and ranges; rows use it too. Every complaint reads
"must be ..., got ..." so that callers put the name of the field in front.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from deepinfer_cli.config.spec import FailureLimit, Setting, Shard

SIZE_UNITS: Final[Mapping[str, int]] = {
    "": 1,
    "B": 1,
    **{f"{p}iB": 1 << (10 * (i + 1)) for i, p in enumerate("KMGT")},
    **{f"{p}B": 1000 ** (i + 1) for i, p in enumerate("KMGT")},
    **{p: 1 << (10 * (i + 1)) for i, p in enumerate("KMGT")},
}
SIZE_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?\s*([KMGT](iB|B)?|B)?$"
SHARD_PATTERN: Final = r"^[0-9]{1,9}/[1-9][0-9]{0,8}$"
FAILURES_PATTERN: Final = r"^([0-9]{1,18}|[0-9]{1,3}(\.[0-9]{1,6})?%)$"

# YAML 1.2 core schema scalars; the underscore form is not part of it and is accepted with a note.
_DECIMAL: Final = re.compile(r"[-+]?[0-9]+")
_GROUPED: Final = re.compile(r"[-+]?[0-9]+(_[0-9]+)+")
_PREFIXED: Final = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MAX_NUMBER_CHARS: Final = 64  # longer ones are out of every range; int() of a huge text is slow
NULL_WORDS: Final = frozenset({"", "~", "null", "Null", "NULL"})
TRUE_WORDS: Final = frozenset({"true", "yes", "on"})
_CORE_BOOLS: Final = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
CONSTRAINT_KINDS: Final = ("json_schema", "regex", "choice", "grammar", "json_object")
FALSE_WORDS: Final = frozenset({"false", "no", "off"})


class Scalar(NamedTuple):
    """What an unquoted piece of text means where a value of some kind is wanted."""

    value: Any
    note: str = ""  # not empty: an unusual spelling was accepted, and this says how it was read


def read_number(text: str) -> Scalar | None:
    """The number that unquoted text spells under YAML 1.2 core rules; None if it is none."""
    if len(text) > _MAX_NUMBER_CHARS:
        return None
    if _DECIMAL.fullmatch(text):
        value = int(text)
        padded = len(text.lstrip("+-")) > 1 and text.lstrip("+-").startswith("0")
        return Scalar(value, f"{text} is read as the decimal number {value}" if padded else "")
    if _GROUPED.fullmatch(text):
        value = int(text.replace("_", ""))
        return Scalar(value, f"{text} is read as the number {value}")
    if _PREFIXED.fullmatch(text):
        return Scalar(int(text, 0))
    if _FLOAT.fullmatch(text):
        return Scalar(float(text))
    if _NOT_FINITE.fullmatch(text):
        return Scalar(float(text.replace(".", "", 1) if text[0] != "." else text[1:]))
    return None


def read_scalar(spec: Setting, text: str) -> Scalar:
    """Unquoted text typed by what the setting wants; what does not fit stays text and is refused later."""
    if spec.nullable and text in NULL_WORDS:
        return Scalar(None)
    if spec.kind == "bool":
        word = text.lower()
        if word in TRUE_WORDS or word in FALSE_WORDS:
            return Scalar(word in TRUE_WORDS)
        return Scalar(text)
    if spec.kind == "constraint":
        if text in NULL_WORDS:
            return Scalar(None)
        return Scalar(_CORE_BOOLS[text]) if text in _CORE_BOOLS else read_number(text) or Scalar(text)
    if spec.kind in ("int", "float", "integers", "bias", "bytes", "failures"):
        return read_number(text) or Scalar(text)
    return Scalar(text)


def shown(value: Any) -> str:
    """A value in an error message: JSON, cut to a readable length."""
    try:
        text = json.dumps(value, ensure_ascii=False)
        text = text if text.isprintable() else json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _range_text(spec: Setting) -> str:
    low, high = spec.minimum, spec.maximum
    if low is not None and high is not None:
        return f" in {'(' if spec.exclusive_minimum else '['}{low}, {high}]"
    if low is not None:
        return f" {'above' if spec.exclusive_minimum else 'of at least'} {low}"
    return f" of at most {high}" if high is not None else ""


def wanted(spec: Setting) -> str:
    """What the setting takes, as a noun phrase: "a number in [0, 2]"."""
    phrases = {
        "bool": "true or false",
        "int": f"an integer{_range_text(spec)}",
        "float": f"a number{_range_text(spec)}",
        "str": "a string",
        "path": "a path",
        "choice": " or ".join([", ".join(spec.choices[:-1]), spec.choices[-1]] if spec.choices else []),
        "bytes": "a size such as 512MiB or 2GiB, or a number of bytes",
        "strings": "a string or a list of non-empty strings",
        "integers": f"a list of integers{_range_text(spec)}",
        "bias": f"a map from token id to a number{_range_text(spec)}",
        "shard": "I/N with I below N, such as 0/4",
        "failures": "a count of rows or a share such as 5%",
        "constraint": f"a map with one of {', '.join(CONSTRAINT_KINDS)}",
    }
    return phrases[spec.kind] + (", or null" if spec.nullable else "")


def _number(spec: Setting, value: Any, *, integer: bool) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    if integer:
        if value != int(value):
            raise ValueError
        value = int(value)
    low, high = spec.minimum, spec.maximum
    if low is not None and (value < low or (spec.exclusive_minimum and value == low)):
        raise ValueError
    if high is not None and value > high:
        raise ValueError
    return value if integer else float(value)


def _text(value: Any, *, is_path: bool = False) -> str:
    """Paths may hold bytes that are no UTF-8, as the system gave them; what goes into prompts may not."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    if is_path:
        os.fsencode(value)
    else:
        value.encode()
    return value


def _size(spec: Setting, value: Any) -> int:
    if isinstance(value, str):
        if not re.match(SIZE_PATTERN, value):
            raise ValueError
        digits = re.match(r"[0-9.]+", value)
        assert digits is not None
        value = int(float(digits.group()) * SIZE_UNITS[value[digits.end() :].strip()])
    return int(_number(spec, value, integer=True))


def _bias(spec: Setting, value: Any) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, Mapping):
        raise ValueError
    pairs: dict[int, float] = {}
    for key, bias in value.items():
        if not re.fullmatch(r"[0-9]{1,10}", str(key)) or int(key) > 2**31 - 1 or int(key) in pairs:
            raise ValueError
        pairs[int(key)] = float(_number(spec, bias, integer=False))
    return tuple(sorted(pairs.items()))


def _shard(value: Any) -> Shard:
    if not isinstance(value, str) or not re.match(SHARD_PATTERN, value):
        raise ValueError
    index, count = map(int, value.split("/"))
    if index >= count:
        raise ValueError
    return Shard(index, count)


def _failures(value: Any) -> FailureLimit:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return FailureLimit(value, None)
    if not isinstance(value, str) or not re.match(FAILURES_PATTERN, value):
        raise ValueError
    if value.endswith("%"):
        share = float(value[:-1]) / 100
        if share > 1:
            raise ValueError
        return FailureLimit(None, share)
    return FailureLimit(int(value), None)


def _strings(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(i, str) and i for i in items):
        raise ValueError
    return tuple(_text(i) for i in items)


def _constraint(value: Any) -> dict[str, Any]:
    """The outline of it; what the parts may be is known where they are read."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError
    if sum(value.get(kind) is not None for kind in CONSTRAINT_KINDS) != 1:
        raise ValueError
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return dict(value)


def _integers(spec: Setting, value: Any) -> tuple[int, ...]:
    items = value if isinstance(value, list | tuple) else [value]
    return tuple(int(_number(spec, i, integer=True)) for i in items)


def _checked(spec: Setting, value: Any) -> Any:
    match spec.kind:
        case "bool":
            if not isinstance(value, bool):
                raise ValueError
            return value
        case "int" | "float":
            return _number(spec, value, integer=spec.kind == "int")
        case "str":
            return _text(value, is_path=spec.key == "model")
        case "path":
            if not _text(value, is_path=True):
                raise ValueError
            return value
        case "choice":
            if not isinstance(value, str) or value not in spec.choices:
                raise ValueError
            return value
        case "bytes":
            return _size(spec, value)
        case "strings":
            return _strings(value)
        case "integers":
            return _integers(spec, value)
        case "bias":
            return _bias(spec, value)
        case "shard":
            return _shard(value)
        case "failures":
            return _failures(value)
        case "constraint":
            return _constraint(value)


def check_value(spec: Setting, value: Any) -> Any:
    """The setting's Python value for a JSON value. ValueError says what was wanted and what was got."""
    if value is None and spec.nullable:
        return None
    try:
        return _checked(spec, value)
    except (ValueError, OverflowError):
        raise ValueError(f"must be {wanted(spec)}, got {shown(value)}") from None


_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")
_TOKENS: Final = re.compile(r"\b(hf_|sk-)[A-Za-z0-9_-]{16,}")


def redact(text: str) -> str:
    """`text` without passwords in addresses and without access tokens, for printing and storing."""
    return _TOKENS.sub(r"\1***", _CREDENTIALS.sub("***@", text))


def to_json(spec: Setting, value: Any) -> Any:
    """The inverse of check_value: a plain JSON value."""
    if value is None:
        return None
    match spec.kind:
        case "strings" | "integers":
            return list(value)
        case "bias":
            return {str(token): bias for token, bias in value}
        case "shard":
            return str(value)
        case "failures":
            return value.count if value.share is None else str(value)
        case _:
            return value
