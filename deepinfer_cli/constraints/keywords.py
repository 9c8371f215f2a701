"""The keywords of JSON Schema: what each may hold, and which unknown ones are slips of the pen."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final
from urllib.parse import urldefrag, urljoin

from deepinfer_cli.constraints.pattern_scan import MAX_PATTERN_BYTES, scan
from deepinfer_cli.constraints.schema_text import MAX_KEY_PATTERNS, MAX_KEYS, MAX_KEYS_IN_ALL, pointer_step
from deepinfer_cli.constraints.types import ConstraintError
from deepinfer_cli.errors import in_short

TYPES: Final = ("null", "boolean", "number", "integer", "string", "array", "object")
DRAFTS: Final[Mapping[str, int]] = {
    "https://json-schema.org/draft/2020-12/schema": 2020,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft-07/schema": 7,
}

_BOTH: Final = {
    "$schema": "string", "$ref": "string", "$comment": "string", "title": "string", "description": "string",
    "default": "any", "examples": "array", "readOnly": "boolean", "const": "any", "enum": "array",
    "type": "type", "format": "string", "contentEncoding": "string", "contentMediaType": "string",
    "multipleOf": "positive", "maximum": "number", "exclusiveMaximum": "number", "minimum": "number",
    "exclusiveMinimum": "number", "maxLength": "count", "minLength": "count", "pattern": "pattern",
    "maxItems": "count", "minItems": "count", "uniqueItems": "boolean", "maxProperties": "count",
    "minProperties": "count", "required": "strings", "definitions": "schema_map", "properties": "schema_map",
    "patternProperties": "pattern_map", "additionalProperties": "schema", "propertyNames": "schema",
    "contains": "schema", "if": "schema", "then": "schema", "else": "schema", "not": "schema",
    "allOf": "schemas", "anyOf": "schemas", "oneOf": "schemas", "dependencies": "dependencies",
    "$id": "string", "writeOnly": "boolean",
}  # fmt: skip
DRAFT_2020: Final = {
    **_BOTH,
    "$anchor": "anchor", "$dynamicRef": "string", "$dynamicAnchor": "anchor", "$vocabulary": "any",
    "$defs": "schema_map", "deprecated": "boolean", "prefixItems": "schemas", "items": "schema",
    "unevaluatedItems": "schema", "unevaluatedProperties": "schema", "dependentSchemas": "schema_map",
    "dependentRequired": "string_map", "maxContains": "count", "minContains": "count",
    "contentSchema": "schema", "$recursiveRef": "string", "$recursiveAnchor": "any",
}  # fmt: skip
DRAFT_7: Final = {**_BOTH, "items": "items", "additionalItems": "schema", "writeOnly": "any"}

_ANNOTATIONS: Final = frozenset(
    ("$schema", "$comment", "title", "description", "default", "examples", "readOnly", "writeOnly",
     "deprecated", "contentEncoding", "contentMediaType", "contentSchema", "definitions", "$defs",
     "$vocabulary", "$anchor", "$dynamicAnchor", "$id", "$recursiveAnchor")
)  # fmt: skip
# Known from elsewhere and without meaning for what is valid.
_FINE: Final = frozenset(
    ("example", "discriminator", "xml", "externalDocs", "id", "enumNames", "order", "labels")
)
_OTHER_NAMES: Final = {
    "min": "minimum",
    "max": "maximum",
    "ref": "$ref",
    "defs": "$defs",
    "optional": "required",
}
_MAX_UNKNOWN: Final = 1_000  # each is compared with all keywords
_ANCHOR: Final = re.compile(r"[A-Za-z_][-A-Za-z0-9._]*")


@dataclass(slots=True)
class Document:
    """A schema whose every part has been looked at, with what its references need."""

    root: Any
    draft: int  # 2020 or 7
    bases: dict[int, str] = field(default_factory=dict)  # id() of a schema -> its base URI
    pointers: dict[int, str] = field(default_factory=dict)  # id() of a schema -> where it stands
    resources: dict[str, Any] = field(default_factory=dict)  # base URI -> schema
    nodes: list[dict[str, Any]] = field(default_factory=list)
    anchors: dict[tuple[str, str], Any] = field(default_factory=dict)  # (base URI, name) -> schema

    def target(self, node: Mapping[str, Any], reference: str, pointer: str) -> Any:
        """The schema that `$ref` in `node` means. Raises ConstraintError."""
        base, fragment = _joined(self.bases[id(node)], reference, pointer)
        if base not in self.resources:
            message = f"a $ref to another document ({in_short(reference)}) is not followed"
            raise ConstraintError("unsupported_schema", message, pointer)
        if fragment and not fragment.startswith("/"):
            found = self.anchors.get((base, fragment))
        else:
            found = _at(self.resources[base], fragment)
        if found is None:
            raise ConstraintError("bad_schema", f"the $ref {in_short(reference)} leads nowhere", pointer)
        if not isinstance(found, bool) and id(found) not in self.bases:
            raise ConstraintError(
                "unsupported_schema", f"{in_short(reference)} is no place of a schema", pointer
            )
        return found


def _joined(base: str, reference: str, pointer: str) -> tuple[str, str]:
    """(absolute address, what stands behind the #)."""
    try:
        whole, fragment = urldefrag(urljoin(base, reference))
        return whole, fragment
    except ValueError as error:
        raise ConstraintError("bad_schema", f"not an address: {error}", pointer) from None


def _at(value: Any, pointer: str) -> Any:
    from urllib.parse import unquote

    for step in unquote(pointer).split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def read_document(root: Any) -> Document:
    """Checks every keyword of every schema in it, as the meta-schemas do. Raises ConstraintError."""
    document = Document(root, _draft(root))
    kinds = DRAFT_2020 if document.draft == 2020 else DRAFT_7
    document.resources[""] = root
    stack: list[tuple[Any, str, str]] = [(root, "", "")]
    num_keys = 0
    unknown: set[str] = set()
    while stack:
        node, pointer, base = stack.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            raise ConstraintError("bad_schema", "a schema must be an object, true or false", pointer)
        base = _register(document, node, pointer, base)
        properties = node.get("properties")
        num_keys += len(properties) if isinstance(properties, dict) else 0
        if num_keys > MAX_KEYS_IN_ALL:
            message = f"the schema declares more than {MAX_KEYS_IN_ALL:,} keys"
            raise ConstraintError("bad_schema", message, f"{pointer}/properties")
        for key, value in node.items():
            kind = kinds.get(key)
            where = pointer + pointer_step(key)
            if kind is None:
                unknown.add(key)
                if len(unknown) > _MAX_UNKNOWN:
                    message = f"the schema has more than {_MAX_UNKNOWN:,} words that are no keywords"
                    raise ConstraintError("bad_schema", message, where)
                _check_unknown(key, value, document.draft, where)
            else:
                inner = _check_value(key, kind, value, where)
                if document.draft == 2020 or "$ref" not in node or key in ("definitions",):
                    stack += [(part, place, base) for part, place in inner]
    _check_cycles(document)
    return document


def _same_value(document: Document, node: dict[str, Any]) -> list[Any]:
    """Schemas that judge the very value that `node` judges."""
    found: list[Any] = []
    if document.draft == 2020 or "$ref" not in node:
        for key in ("allOf", "anyOf", "oneOf"):
            found += node.get(key, ())
        found += [node[key] for key in ("not", "if", "then", "else") if key in node]
        for key in ("dependentSchemas", "dependencies"):
            found += node.get(key, {}).values()
    for key in ("$ref", "$dynamicRef"):
        if key in node:
            try:
                found.append(document.target(node, node[key], ""))
            except ConstraintError:
                continue  # told where the reference is in use
    return [part for part in found if isinstance(part, dict)]


def _check_cycles(document: Document) -> None:
    """A schema that asks itself about the same value has no answer."""
    done: set[int] = set()
    for start in document.nodes:
        path: list[tuple[int, list[Any]]] = []
        on_path: set[int] = set()
        enter: Any = start
        while enter is not None or path:
            if enter is not None and id(enter) not in done:
                if id(enter) in on_path:
                    message = "the schema refers back to itself for the same value, without end"
                    raise ConstraintError("bad_schema", message, document.pointers[id(enter)])
                on_path.add(id(enter))
                path.append((id(enter), _same_value(document, enter)))
            if path and path[-1][1]:
                enter = path[-1][1].pop()
                continue
            enter = None
            if path:
                left, _ = path.pop()
                on_path.discard(left)
                done.add(left)


def _draft(root: Any) -> int:
    named = root.get("$schema") if isinstance(root, dict) else None
    if named is None:
        return 2020
    draft = DRAFTS.get(named.removesuffix("#")) if isinstance(named, str) else None
    if draft is None:
        message = "$schema must be that of draft 2020-12 or draft 7"
        raise ConstraintError("unsupported_schema", message, "/$schema")
    return draft


def _register(document: Document, node: dict[str, Any], pointer: str, base: str) -> str:
    """Remembers the schema under every name it has; its base URI."""
    name = node.get("$id")
    if isinstance(name, str) and (document.draft == 2020 or "$ref" not in node):
        whole, fragment = _joined(base, name, pointer + "/$id")
        if name.startswith("#") and document.draft == 7:
            document.anchors[base, fragment] = node
        else:
            base = whole
            document.resources.setdefault(base, node)
    for key in ("$anchor", "$dynamicAnchor"):
        if document.draft == 2020 and isinstance(node.get(key), str):
            document.anchors[base, node[key]] = node
    document.bases[id(node)] = base
    document.nodes.append(node)
    document.pointers[id(node)] = pointer
    return base


def _check_unknown(key: str, value: Any, draft: int, pointer: str) -> None:
    if key in _FINE or key.startswith(("x-", "$$")):
        return
    if key == "nullable":
        if value is not False:
            raise ConstraintError("bad_schema", 'nullable is no keyword; write type: [..., "null"]', pointer)
        return
    if draft == 7 and key in DRAFT_2020 and key not in _ANNOTATIONS:
        raise ConstraintError("bad_schema", f"{key} is no keyword of draft 7, which $schema names", pointer)
    if key == "additionalItems":
        raise ConstraintError(
            "bad_schema", "additionalItems is no keyword of draft 2020-12; write items", pointer
        )
    meant = _meant(key) if len(key) <= 40 else None
    if meant is not None:
        raise ConstraintError("bad_schema", f"{key} is no keyword; did you mean {meant}?", pointer)


@cache
def _by_squeezed() -> dict[str, str]:
    names = [
        name for name in {**DRAFT_2020, **DRAFT_7} if name not in _ANNOTATIONS and "ecursive" not in name
    ]
    return {name.lower(): name for name in names}


@lru_cache(4096)
def _meant(key: str) -> str | None:
    squeezed = key.lower().replace("_", "").replace("-", "")
    if squeezed in _OTHER_NAMES:
        return _OTHER_NAMES[squeezed]
    close = difflib.get_close_matches(squeezed, _by_squeezed(), n=1, cutoff=0.83)
    return _by_squeezed()[close[0]] if close else None


def _wrong(key: str, words: str, pointer: str) -> ConstraintError:
    return ConstraintError("bad_schema", f"{key} must be {words}", pointer)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    return is_number(value) and value >= 0 and value == int(value)


def _check_value(key: str, kind: str, value: Any, pointer: str) -> Iterator[tuple[Any, str]]:
    """Checks one keyword; (schema, pointer) of the schemas in its value."""
    match kind:
        case "schema":
            return iter([(value, pointer)])
        case "items" if isinstance(value, list):
            return _schemas(key, value, pointer)
        case "items":
            return iter([(value, pointer)])
        case "schemas":
            return _schemas(key, value, pointer)
        case "schema_map" | "pattern_map":
            return _schema_map(key, value, pointer, are_patterns=kind == "pattern_map")
        case "dependencies":
            return _dependencies(key, value, pointer)
        case _:
            _check_plain(key, kind, value, pointer)
            return iter(())


def _schemas(key: str, value: Any, pointer: str) -> Iterator[tuple[Any, str]]:
    if not isinstance(value, list) or not value:
        raise _wrong(key, "a list of at least one schema", pointer)
    return ((part, f"{pointer}/{i}") for i, part in enumerate(value))


def _schema_map(key: str, value: Any, pointer: str, *, are_patterns: bool) -> Iterator[tuple[Any, str]]:
    if not isinstance(value, dict):
        raise _wrong(key, "an object of schemas", pointer)
    most = MAX_KEY_PATTERNS if are_patterns else MAX_KEYS if key == "properties" else MAX_KEYS_IN_ALL
    if len(value) > most:
        message = f"{key} has {len(value):,} entries; at most {most:,} are taken"
        raise ConstraintError("bad_schema", message, pointer)
    if are_patterns:
        for name in value:
            _check_pattern(name, pointer + pointer_step(name))
    return ((part, pointer + pointer_step(name)) for name, part in value.items())


def _dependencies(key: str, value: Any, pointer: str) -> Iterator[tuple[Any, str]]:
    if not isinstance(value, dict):
        raise _wrong(key, "an object", pointer)
    schemas = []
    for name, part in value.items():
        where = pointer + pointer_step(name)
        if isinstance(part, list):
            _check_plain(name, "strings", part, where)
        else:
            schemas.append((part, where))
    return iter(schemas)


def _check_pattern(pattern: str, pointer: str) -> None:
    if len(pattern) > MAX_PATTERN_BYTES:  # `re` would take a second
        message = f"the pattern is longer than {MAX_PATTERN_BYTES:,} bytes"
        raise ConstraintError("bad_schema", message, pointer)
    try:
        re.compile(scan(pattern).parsable)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise ConstraintError("bad_schema", f"not a regular expression: {error}", pointer) from None
    except ConstraintError as error:
        raise ConstraintError(error.code, error.message, pointer) from None


def _check_plain(key: str, kind: str, value: Any, pointer: str) -> None:
    match kind:
        case "string" if not isinstance(value, str):
            raise _wrong(key, "a string", pointer)
        case "anchor" if not isinstance(value, str) or not _ANCHOR.fullmatch(value):
            raise _wrong(key, "a name", pointer)
        case "pattern":
            if not isinstance(value, str):
                raise _wrong(key, "a string", pointer)
            _check_pattern(value, pointer)
        case "boolean" if not isinstance(value, bool):
            raise _wrong(key, "true or false", pointer)
        case "number" if not is_number(value):
            raise _wrong(key, "a number", pointer)
        case "positive" if not is_number(value) or value <= 0:
            raise _wrong(key, "a number above 0", pointer)
        case "count" if not is_count(value):
            raise _wrong(key, "an integer of at least 0", pointer)
        case "array" if not isinstance(value, list):
            raise _wrong(key, "a list", pointer)
        case "strings":
            _check_strings(key, value, pointer)
        case "string_map":
            if not isinstance(value, dict):
                raise _wrong(key, "an object", pointer)
            for name, part in value.items():
                _check_strings(name, part, pointer + pointer_step(name))
        case "type":
            names = value if isinstance(value, list) else [value]
            if not names or not all(isinstance(name, str) and name in TYPES for name in names):
                shown = in_short(str(next((name for name in names if name not in TYPES), value)))
                raise _wrong(key, f"one of {', '.join(TYPES)}, or a list of them, not {shown}", pointer)
            if len(set(names)) < len(names):
                raise _wrong(key, "a list without repetition", pointer)


def _check_strings(key: str, value: Any, pointer: str) -> None:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(key, "a list of strings", pointer)
    if len(set(value)) < len(value):
        raise _wrong(key, "a list without repetition", pointer)
