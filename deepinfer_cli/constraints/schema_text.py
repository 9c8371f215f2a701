"""The text of a JSON Schema as a value, within bounds that keep everything after it quick."""

from __future__ import annotations

import math
from typing import Any, Final

from deepinfer_cli.constraints.json_value import JsonError, parse_json
from deepinfer_cli.constraints.types import ConstraintError
from deepinfer_cli.errors import in_short

MAX_BYTES: Final = 1 << 20
MAX_LEVELS: Final = 100  # of objects and arrays in each other
MAX_ENUM_VALUES: Final = 10_000  # in the whole schema
MAX_KEYS: Final = 2_000  # declared by one object
MAX_KEYS_IN_ALL: Final = 10_000
MAX_KEY_PATTERNS: Final = 50  # of one object: each is compared with each
_TOO_DEEP: Final = f"the schema nests deeper than {MAX_LEVELS} levels"


def pointer_step(name: str | int) -> str:
    return "/" + str(name).replace("~", "~0").replace("/", "~1")


def read_schema(source: str) -> Any:
    """Raises ConstraintError."""
    try:
        num_bytes = len(source.encode())
    except UnicodeEncodeError:
        raise ConstraintError("bad_schema", "the schema has a lone surrogate") from None
    if num_bytes > MAX_BYTES:
        raise ConstraintError(
            "bad_schema", f"the schema has {num_bytes:,} bytes; at most {MAX_BYTES:,} are taken"
        )
    try:
        schema = parse_json(source)
    except RecursionError:
        raise ConstraintError("bad_schema", _TOO_DEEP) from None
    except JsonError as error:
        raise ConstraintError("bad_schema", in_short(f"the schema is {error}")) from None
    except ValueError:  # a number of thousands of digits
        raise ConstraintError("bad_schema", "the schema has a number that is too long") from None
    _check_bounds(schema)
    return schema


def _check_bounds(schema: Any) -> None:
    num_enum_values = 0
    level = [(schema, "")]
    for _ in range(MAX_LEVELS + 1):
        deeper: list[tuple[Any, str]] = []
        for value, pointer in level:
            if isinstance(value, dict):
                values = value.get("enum")
                num_enum_values += len(values) if isinstance(values, list) else 0
                if num_enum_values > MAX_ENUM_VALUES:
                    message = f"the schema has more than {MAX_ENUM_VALUES:,} enum values"
                    raise ConstraintError("bad_schema", message, pointer + "/enum")
                deeper += [(inner, pointer + pointer_step(key)) for key, inner in value.items()]
            elif isinstance(value, list):
                deeper += [(inner, f"{pointer}/{i}") for i, inner in enumerate(value)]
            elif isinstance(value, float) and not math.isfinite(value):
                raise ConstraintError("bad_schema", "a number is too large", pointer)
            elif isinstance(value, str) and not value.isascii() and _has_half(value):
                raise ConstraintError("bad_schema", "a lone surrogate", pointer)
        if not deeper:
            return
        level = deeper
    raise ConstraintError("bad_schema", _TOO_DEEP)


def _has_half(text: str) -> bool:
    return any(0xD800 <= ord(char) < 0xE000 for char in text)
