"""Schemas that no text can ever finish: a list of which each element needs another one inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepinfer_cli.constraints.types import ConstraintError

_ENDLESS = "values of this schema never end: each needs another one inside"


def check_finite(root: Any, defs: Mapping[str, Any], pointers: Mapping[str, str]) -> None:
    """Raises ConstraintError for the first definition, or the root, of which no value is finite."""
    users: dict[str, set[str]] = {name: set() for name in defs}
    for name, schema in defs.items():
        for used in _references(schema):
            users[used].add(name)
    finite: set[str] = set()
    to_try = list(defs)
    while to_try:
        name = to_try.pop()
        if name not in finite and _can_end(defs[name], finite):
            finite.add(name)
            to_try += users[name] - finite
    for name in defs:
        if name not in finite and defs[name] is not False:
            raise ConstraintError("bad_schema", _ENDLESS, pointers[name])
    if not _can_end(root, finite):
        raise ConstraintError("bad_schema", _ENDLESS, "")


def _references(schema: Any) -> set[str]:
    """Names of all definitions in it."""
    found: set[str] = set()
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            name = part.get("$ref")
            found |= {name.rpartition("/")[2]} if isinstance(name, str) else set()
            stack += [value for key, value in part.items() if key not in ("const", "enum")]
        elif isinstance(part, list):
            stack += part
    return found


def _can_end(schema: Any, finite: set[str]) -> bool:
    """Could some value of it be finite, if those of `finite` are? Sure of every no."""
    if isinstance(schema, bool):
        return True  # of `false` there is none at all, which the engine says better
    if "$ref" in schema and schema["$ref"].rpartition("/")[2] not in finite:
        return False
    if not all(_can_end(part, finite) for part in schema.get("allOf", ())):
        return False
    for key in ("anyOf", "oneOf"):
        if key in schema and not any(_can_end(part, finite) for part in schema[key]):
            return False
    named = schema.get("type")
    kinds = {named} if isinstance(named, str) else set(named or ("null",))
    if kinds - {"object", "array"} or "const" in schema or "enum" in schema:
        return True
    return ("object" in kinds and _object_can_end(schema, finite)) or (
        "array" in kinds and _array_can_end(schema, finite)
    )


def _object_can_end(schema: Mapping[str, Any], finite: set[str]) -> bool:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    patterns = schema.get("patternProperties", {})
    return all(
        _can_end(properties.get(name, True if patterns else others), finite)
        for name in schema.get("required", ())
    )


def _array_can_end(schema: Mapping[str, Any], finite: set[str]) -> bool:
    least = schema.get("minItems", 0)
    first = schema.get("prefixItems", ())
    if least > len(first) and not _can_end(schema.get("items", True), finite):
        return False
    return all(_can_end(part, finite) for part in first[:least])
