"""Keywords of objects, and those that look at what other keywords have looked at."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from deepinfer_cli.constraints.pattern_scan import for_python
from deepinfer_cli.constraints.schema_text import pointer_step
from deepinfer_cli.constraints.types import ConstraintError

if TYPE_CHECKING:
    from deepinfer_cli.constraints.json_schema import Schema, Writer

_MAX_SUBSETS: Final = 128  # of optional keys, written out for minProperties and maxProperties
_MAX_DEPENDENTS: Final = 6  # each doubles the alternatives


def write(
    writer: Writer, node: Mapping[str, Any], out: dict[str, Any], extra: list[Schema], pointer: str
) -> bool:
    """Adds the object keywords of `node`. True when it names keys and takes others besides."""
    from deepinfer_cli.constraints.json_schema import types_of

    if "object" not in types_of(node):
        return False
    if "properties" in node:
        out["properties"] = {
            name: writer.schema(part, f"{pointer}/properties{pointer_step(name)}")
            for name, part in node["properties"].items()
        }
    if "patternProperties" in node:
        _pattern_properties(writer, node["patternProperties"], out, pointer)
    if "additionalProperties" in node:
        out["additionalProperties"] = writer.schema(
            node["additionalProperties"], f"{pointer}/additionalProperties"
        )
    if "required" in node:
        out["required"] = list(node["required"])
    if "propertyNames" in node:
        _property_names(writer, node["propertyNames"], out, pointer)
    _dependents(writer, node, out, extra, pointer)
    _counts(writer, node, out, extra, pointer)
    if "unevaluatedProperties" in node and node["unevaluatedProperties"] is not True:
        unevaluated_properties(writer, node, extra, pointer)
    names_keys = any(key in out for key in ("properties", "required", "patternProperties"))
    return names_keys and out.get("additionalProperties") is not False


def _pattern_properties(writer: Writer, given: Mapping[str, Any], out: dict[str, Any], pointer: str) -> None:
    found: dict[str, Schema] = {}
    for pattern, part in given.items():
        where = f"{pointer}/patternProperties{pointer_step(pattern)}"
        whole = writer.patterns(pattern, where)
        if len(whole) > 1 or any(text in found for text in whole):
            writer.lacks(where, "a look-ahead is not enforced in a pattern of keys")
        elif whole:
            found[whole[0]] = writer.schema(part, where)
    out["patternProperties"] = found


# ---- names ------------------------------------------------------------------------------------------------


def _property_names(writer: Writer, names: Any, out: dict[str, Any], pointer: str) -> None:
    where = f"{pointer}/propertyNames"
    if names is True or names == {}:
        return
    if names is False:
        out["maxProperties"] = 0
        return
    said = {key: value for key, value in names.items() if key not in ("title", "description", "$comment")}
    if said.pop("type", "string") != "string":
        writer.lacks(where, "propertyNames with another type than string is not enforced")
        return
    listed = _listed(said)
    declared: dict[str, Schema] = out.get("properties", {})
    others: Schema = out.get("additionalProperties", True)
    if listed is not None and said.keys() <= {"const", "enum"} and "patternProperties" not in out:
        out["properties"] = {name: part if name in listed else False for name, part in declared.items()}
        out["properties"] |= {name: others for name in listed if name not in declared}
        out["additionalProperties"] = False
        return
    pattern = _name_pattern(writer, said, where)
    if pattern is None or "patternProperties" in out or (declared and others is not True):
        writer.lacks(where, "propertyNames is enforced for one pattern, lengths or a list of names alone")
        return
    whole, matches = pattern
    out["properties"] = {name: part if matches(name) else False for name, part in declared.items()}
    out["patternProperties"] = {whole: others}
    out["additionalProperties"] = False


def _listed(said: Mapping[str, Any]) -> list[str] | None:
    if "const" in said:
        return [said["const"]] if isinstance(said["const"], str) else []
    if "enum" in said:
        return [name for name in said["enum"] if isinstance(name, str)]
    return None


def _name_pattern(writer: Writer, said: Mapping[str, Any], where: str) -> tuple[str, Any] | None:
    """(pattern of the whole name, the same as a function) of a single condition."""
    if said.keys() == {"pattern"}:
        whole = writer.patterns(said["pattern"], f"{where}/pattern")
        return (whole[0], re.compile(for_python(said["pattern"])).search) if len(whole) == 1 else None
    if said and said.keys() <= {"minLength", "maxLength"}:
        low, high = int(said.get("minLength", 0)), said.get("maxLength")
        top = "" if high is None else int(high)
        return (
            f"^(?s:.{{{low},{top}}})$",
            lambda name: low <= len(name) <= (len(name) if high is None else high),
        )
    return None


# ---- keys that go together -------------------------------------------------------------------------------


def _dependents(
    writer: Writer, node: Mapping[str, Any], out: dict[str, Any], extra: list[Schema], pointer: str
) -> None:
    found: list[tuple[str, dict[str, Any], str]] = []  # key, what is then wanted, where it says so
    if writer.document.draft == 7:
        groups = {"dependencies": node.get("dependencies", {})}
    else:
        groups = {key: node.get(key, {}) for key in ("dependentRequired", "dependentSchemas", "dependencies")}
    for key, group in groups.items():
        for name, part in group.items():
            where = f"{pointer}/{key}{pointer_step(name)}"
            if isinstance(part, list):
                found += [(name, {"required": [*part, name]}, where)] if part else []
                continue
            wanted = writer.schema(part, where)
            if wanted is not True and wanted != {}:
                found.append((name, {"required": [name], "allOf": [wanted]}, where))
    for i, (name, there, where) in enumerate(found):
        if i >= _MAX_DEPENDENTS:
            writer.lacks(where, f"more than {_MAX_DEPENDENTS} keys that depend on others are not enforced")
            continue
        absent = {"type": "object", "properties": {name: False}}
        extra.append({"anyOf": [absent, {"type": "object", **there}, _not_objects()]})


def _not_objects() -> dict[str, Any]:
    return {"type": ["array", "boolean", "null", "number", "string"]}


def _counts(
    writer: Writer, node: Mapping[str, Any], out: dict[str, Any], extra: list[Schema], pointer: str
) -> None:
    """The engine counts keys where all that are declared are required: each way to choose among the optional
    ones becomes an alternative."""
    least = max(int(node.get("minProperties", 0)), out.pop("minProperties", 0))
    most = min(
        (int(n) for n in (node.get("maxProperties"), out.pop("maxProperties", None)) if n is not None),
        default=None,
    )
    properties: dict[str, Schema] = out.get("properties", {})
    required = set(out.get("required", ()))
    optional = [name for name, part in properties.items() if name not in required and part is not False]
    is_closed = out.get("additionalProperties", True) is False and not out.get("patternProperties")
    if least <= len(required):
        least = 0
    if most is not None and is_closed and most >= len(required) + len(optional):
        most = None
    if least:
        out["minProperties"] = least
    if most is not None:
        out["maxProperties"] = most
    if not optional or (not least and most is None):
        return
    room = len(optional) if most is None else most - len(required)
    subsets: list[set[str]] = []
    for num in range(max(0, least - len(required)) if is_closed else 0, min(room, len(optional)) + 1):
        subsets += map(set, itertools.islice(itertools.combinations(optional, num), _MAX_SUBSETS + 1))
        if len(subsets) > _MAX_SUBSETS:
            break
    if len(subsets) > _MAX_SUBSETS:
        key = "maxProperties" if most is not None else "minProperties"
        writer.lacks(f"{pointer}/{key}", f"{key} is not enforced over so many optional keys")
        out.pop("minProperties", None)
        out.pop("maxProperties", None)
        return
    alternatives: list[Schema] = [
        {
            "type": "object",
            "required": [name for name in optional if name in chosen],
            "properties": {name: False for name in optional if name not in chosen},
        }
        for chosen in subsets
    ]
    extra.append({"anyOf": [*alternatives, _not_objects()]})


# ---- what nothing else has looked at ----------------------------------------------------------------------


@dataclass(slots=True)
class _Seen:
    """What a schema's keywords evaluate of any object or array that fits."""

    names: set[str] = field(default_factory=set)
    patterns: set[str] = field(default_factory=set)
    all_names: bool = False
    num_items: int = 0
    all_items: bool = False

    def add(self, other: _Seen) -> None:
        self.names |= other.names
        self.patterns |= other.patterns
        self.all_names |= other.all_names
        self.num_items = max(self.num_items, other.num_items)
        self.all_items |= other.all_items


class _Depends(Exception):
    """On the value itself."""


def _seen(writer: Writer, node: Any, *, of_items: bool, depth: int = 0, is_top: bool = False) -> _Seen:
    found = _Seen()
    if isinstance(node, bool):
        return found
    if depth > 30:
        raise _Depends
    if of_items and "contains" in node:
        raise _Depends
    found.names |= set(node.get("properties", ()))
    found.patterns |= set(node.get("patternProperties", ()))
    found.all_names = "additionalProperties" in node or (not is_top and "unevaluatedProperties" in node)
    found.num_items = len(node.get("prefixItems", ()))
    found.all_items = "items" in node or (not is_top and "unevaluatedItems" in node)
    always = list(node.get("allOf", ()))
    for key in ("$ref", "$dynamicRef"):
        if key in node:
            always.append(writer.document.target(node, node[key], ""))
    for part in always:
        found.add(_seen(writer, part, of_items=of_items, depth=depth + 1))
    sometimes = [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("dependentSchemas", {}).values()]
    sometimes += [node[key] for key in ("if", "then", "else") if key in node]
    for part in sometimes:
        other = _seen(writer, part, of_items=of_items, depth=depth + 1)
        if (
            (other.all_items or other.num_items)
            if of_items
            else (other.all_names or other.names or other.patterns)
        ):
            raise _Depends
    return found


def unevaluated_properties(
    writer: Writer, node: Mapping[str, Any], extra: list[Schema], pointer: str
) -> None:
    where = f"{pointer}/unevaluatedProperties"
    try:
        seen = _seen(writer, node, of_items=False, is_top=True)
        if seen.all_names:
            return
        closed: dict[str, Any] = {"properties": dict.fromkeys(sorted(seen.names), True)}
        if seen.patterns:
            whole = [writer.patterns(pattern, where) for pattern in sorted(seen.patterns)]
            if any(len(found) != 1 for found in whole):
                raise _Depends
            closed["patternProperties"] = {found[0]: True for found in whole}
        closed["additionalProperties"] = writer.schema(node["unevaluatedProperties"], where)
        extra.append(closed)
    except (_Depends, ConstraintError) as error:
        if isinstance(error, ConstraintError) and error.pointer != where:
            raise
        writer.lacks(where, "unevaluatedProperties is not enforced where it depends on the value")


def unevaluated_items(writer: Writer, node: Mapping[str, Any], extra: list[Schema], pointer: str) -> None:
    where = f"{pointer}/unevaluatedItems"
    try:
        seen = _seen(writer, node, of_items=True, is_top=True)
    except _Depends:
        writer.lacks(where, "unevaluatedItems is not enforced where it depends on the value")
        return
    if not seen.all_items:
        rest = writer.schema(node["unevaluatedItems"], where)
        extra.append(
            {"prefixItems": [True] * seen.num_items, "items": rest} if seen.num_items else {"items": rest}
        )
