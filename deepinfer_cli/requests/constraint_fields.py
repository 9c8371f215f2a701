"""Constraints of a row. This build enforces none: a row that asks for one is refused, never run without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepinfer_cli.requests.types import FieldError

KINDS = ("json_schema", "regex", "choice", "grammar")


def check_no_constraint(values: Mapping[str, Any], prefix: str = "") -> None:
    """`values`: decoded constraint fields of one row. Raises FieldError for every form that asks for one."""
    asked = [name for name, value in values.items() if value is not None]
    if "response_format" in asked:
        asked = [n for n in asked if n != "response_format" or _response_format(values[n], prefix + n)]
    if not asked:
        return
    if len(asked) > 1:
        message = f"give one of {' and '.join(prefix + name for name in asked)}"
        raise FieldError("bad_param", message, prefix + asked[1])
    field = prefix + asked[0]
    if asked[0] == "constraint":
        field = _constraint(values["constraint"], field)
    elif asked[0] == "response_format":
        field = _response_format(values["response_format"], field) or field
    raise FieldError(
        "unsupported_schema",
        f"{field} (/{field.replace('.', '/')}): this build does not enforce constraints",
        field,
    )


def _response_format(value: Any, field: str) -> str | None:
    """The field that holds the constraint, or None for plain text."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return f"{field}.type"
    if kind == "json_schema":
        inner = value.get("json_schema")
        if not isinstance(inner, dict) or not isinstance(inner.get("schema"), dict | bool):
            where = f"{field}.json_schema.schema"
            raise FieldError("bad_schema", f"{where} must be a schema", where)
        return f"{field}.json_schema.schema"
    message = f'{field}.type must be "text", "json_object" or "json_schema"'
    raise FieldError("bad_param", message, f"{field}.type")


def _constraint(value: Any, field: str) -> str:
    if not isinstance(value, dict):
        raise FieldError("bad_param", f"{field} must be an object", field)
    for key in value:
        if key not in (*KINDS, "grammar_syntax"):
            raise FieldError("bad_param", f"{field}.{key} is unknown; one of {', '.join(KINDS)}", field)
    kinds = [kind for kind in KINDS if value.get(kind) is not None]
    if len(kinds) != 1:
        raise FieldError("bad_param", f"{field} must have exactly one of {', '.join(KINDS)}", field)
    where = f"{field}.{kinds[0]}"
    inner = value[kinds[0]]
    if kinds[0] == "choice":
        if not isinstance(inner, list) or not inner or not all(isinstance(c, str) for c in inner):
            raise FieldError("bad_param", f"{where} must be a list of at least one string", where)
    elif kinds[0] != "json_schema" and not isinstance(inner, str):
        raise FieldError("bad_param", f"{where} must be a string", where)
    return where
