"""The opposite of a schema, where the engine's keywords can say it; and `oneOf` of plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from deepinfer_cli.constraints.charset import spelled
from deepinfer_cli.constraints.keywords import is_number

if TYPE_CHECKING:
    from deepinfer_cli.constraints.json_schema import Schema, Writer

_SAY_NOTHING: Final = frozenset(
    ("title", "description", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly",
     "$schema", "contentEncoding", "contentMediaType", "$id", "$anchor", "$defs", "definitions")
)  # fmt: skip
_TYPES: Final = ("null", "boolean", "number", "string", "array", "object")
_MAX_LENGTH: Final = 100  # of a string whose opposite is written: it nests a group for each character


def negated(writer: Writer, node: Any, pointer: str) -> Schema | None:
    """A schema of all other values, or None."""
    if isinstance(node, bool):
        return not node
    parts: list[Schema] = []
    for key, value in node.items():
        if key in _SAY_NOTHING:
            continue
        part = _opposite(writer, key, value, node, pointer)
        if part is None:
            return None
        parts.append(part)
    kept = [part for part in parts if part is not False]
    if not kept:
        return False
    return True if True in kept else kept[0] if len(kept) == 1 else {"anyOf": kept}


def _opposite(writer: Writer, key: str, value: Any, node: Mapping[str, Any], pointer: str) -> Schema | None:
    """Of one keyword."""
    match key:
        case "type":
            return _other_types(value)
        case "const":
            return _other_values([value])
        case "enum":
            return _other_values(value)
        case "not":
            return writer.schema(value, f"{pointer}/not")
        case "required":
            missing: list[Schema] = [{"properties": {name: False}} for name in value]
            return {"type": "object", "anyOf": missing} if missing else False
        case "properties":
            return _other_properties(writer, value, pointer)
        case "anyOf" | "allOf":
            found = [negated(writer, part, f"{pointer}/{key}/{i}") for i, part in enumerate(value)]
            known = [part for part in found if part is not None]
            if len(known) < len(found):
                return None
            return {"allOf" if key == "anyOf" else "anyOf": known}
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            return _other_side(writer, key, value, pointer)
        case "minLength" | "minItems":
            kind, most = ("string", "maxLength") if key == "minLength" else ("array", "maxItems")
            return {"type": kind, most: int(value) - 1} if value else False
        case "maxLength" | "maxItems":
            kind, least = ("string", "minLength") if key == "maxLength" else ("array", "minItems")
            return {"type": kind, least: int(value) + 1}
    return None


def _other_types(value: Any) -> Schema | None:
    named = {value} if isinstance(value, str) else set(value)
    if "integer" in named and "number" not in named:
        return None  # a number that is no integer can be said only by leaving out its integers
    others = [name for name in _TYPES if name not in named]
    return {"type": others} if others else False


def _other_side(writer: Writer, key: str, value: Any, pointer: str) -> Schema | None:
    opposites = {
        "minimum": "exclusiveMaximum",
        "maximum": "exclusiveMinimum",
        "exclusiveMinimum": "maximum",
        "exclusiveMaximum": "minimum",
    }
    return writer.schema({"type": "number", opposites[key]: value}, f"{pointer}/{key}")


def _other_properties(writer: Writer, properties: Mapping[str, Any], pointer: str) -> Schema | None:
    """Some named key is there with a value that does not fit."""
    found: list[Schema] = []
    for name, part in properties.items():
        opposite = negated(writer, part, f"{pointer}/properties/{name}")
        if opposite is None:
            return None
        if opposite is not False:
            found.append({"type": "object", "required": [name], "properties": {name: opposite}})
    return {"anyOf": found} if found else False


def _other_values(values: list[Any]) -> Schema | None:
    if any(isinstance(value, list | dict) for value in values):
        return None
    strings = [value for value in values if isinstance(value, str)]
    if any(len(text) > _MAX_LENGTH for text in strings):
        return None
    found: list[Schema] = [{"type": ["array", "object"]}]
    if None not in values:
        found.append({"type": "null"})
    for truth in (True, False):
        if not any(value is truth for value in values):
            found.append({"const": truth})
    found.append(
        {"type": "string", "pattern": f"^(?:{_others(strings)})$"} if strings else {"type": "string"}
    )
    numbers = sorted({value for value in values if is_number(value)})
    if numbers:
        if any(value != int(value) or abs(value) > 2**53 - 1 for value in numbers):
            return None
        from deepinfer_cli.constraints.schema_numbers import bounds

        for low, high in zip([None, *numbers], [*numbers, None], strict=True):
            ends = {"exclusiveMinimum": low, "exclusiveMaximum": high}
            given = {key: end for key, end in ends.items() if end is not None}
            found.append({"type": "number", **bounds(given, "", only_integers=False)})
    else:
        found.append({"type": "number"})
    return {"anyOf": found}


def _others(texts: list[str]) -> str:
    """Pattern of every text that is none of `texts`."""
    heads: dict[str, list[str]] = {}
    for text in texts:
        if text:
            heads.setdefault(text[0], []).append(text[1:])
    first = spelled((ord(char), ord(char)) for char in sorted(heads))
    parts = [] if "" in texts else [""]
    parts.append(f"[^{first}](?s:.*)" if heads else "(?s:.+)")
    parts += [f"{spelled([(ord(char),) * 2])}(?:{_others(rest)})" for char, rest in heads.items()]
    return "|".join(parts)


def exactly_once(parts: list[Any]) -> list[Any] | None:
    """The values that just one of `parts` takes, when each takes only values that it lists."""
    lists = []
    for part in parts:
        said = {key for key in part if key not in _SAY_NOTHING} if isinstance(part, dict) else set()
        if said == {"const"}:
            lists.append([part["const"]])
        elif said == {"enum"}:
            lists.append(part["enum"])
        else:
            return None
    counts: dict[str, int] = {}
    values: dict[str, Any] = {}
    for listed in lists:
        for name, value in {_same(value): value for value in listed}.items():
            counts[name] = counts.get(name, 0) + 1
            values[name] = value
    return [value for name, value in values.items() if counts[name] == 1]


def _same(value: Any) -> str:
    """The same for values that are equal in JSON: 1 and 1.0, but not 1 and true."""
    if is_number(value) and value == int(value):
        return str(int(value))
    if isinstance(value, list):
        return "[" + ",".join(map(_same, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_same(item)}" for key, item in sorted(value.items())) + "}"
    return json.dumps(value)
