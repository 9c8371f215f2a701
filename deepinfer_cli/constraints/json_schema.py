"""A JSON Schema to one that the engine enforces exactly, or a refusal that names keyword and place.

The engine never sees the schema itself. Each part that is in use is written anew with the keywords that it
gets right; what it lacks is expressed by those where that is exact, and refused otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from deepinfer_cli.constraints import engine_refusals, formats, schema_logic, schema_numbers, schema_objects
from deepinfer_cli.constraints.finite import check_finite
from deepinfer_cli.constraints.keywords import Document, is_number, read_document
from deepinfer_cli.constraints.regex import search_patterns
from deepinfer_cli.constraints.schema_text import read_schema
from deepinfer_cli.constraints.together import check_together
from deepinfer_cli.constraints.types import ConstraintError, ConstraintOptions

Schema: TypeAlias = bool | dict[str, Any]
_Node: TypeAlias = Mapping[str, Any]

_REF_AND_WORDS: Final = frozenset(
    ("$ref", "title", "description", "$comment", "default", "examples", "deprecated")
)
ALL_TYPES: Final = frozenset(("null", "boolean", "number", "integer", "string", "array", "object"))
# Between two tokens of JSON at most one of these, so that no model goes on with white space for ever.
_BOUNDED: Final = r"\x20|\x0A(?:\x20{0,40}|\x09{0,10})"
_MAX_OPENED: Final = 200
_MAX_DROPPED: Final = 50
_ESCAPES: Final = 'nrbtf\\"'  # no \u: a key could be spelled so that the engine takes it for another


def grammar(source: str, options: ConstraintOptions) -> tuple[str, tuple[str, ...]]:
    """(what the engine compiles, what is not enforced). Raises ConstraintError."""
    try:
        document = read_document(read_schema(source))
        if options.best_effort:
            return _best_effort(document, options)
        return Writer(document).grammar(options), ()
    except RecursionError:
        raise ConstraintError(
            "unsupported_schema", "the schema's parts stand in each other too deep"
        ) from None


def refusal(source: str, options: ConstraintOptions, error: ConstraintError) -> ConstraintError:
    """The engine's refusal of a whole schema, with the place of the part that it is about."""
    try:
        document = read_document(read_schema(source))
        writer = Writer(document)
        writer.grammar(options)
        pointer = engine_refusals.place(writer, options)
    except (ConstraintError, RecursionError):
        return error
    return engine_refusals.in_our_words(error, pointer)


def _best_effort(document: Document, options: ConstraintOptions) -> tuple[str, tuple[str, ...]]:
    """What the engine itself refuses is left out too, one keyword after the other."""
    dropped: list[str] = []
    while True:
        writer = Writer(document, best_effort=True, dropped=frozenset(dropped))
        text = writer.grammar(options)
        if len(dropped) >= _MAX_DROPPED or engine_refusals.complaint(text) is None:
            return text, tuple(dict.fromkeys([*writer.not_enforced, *dropped]))
        pointer = engine_refusals.place(writer, options)
        if pointer is None or pointer in dropped or not engine_refusals.may_be_dropped(pointer):
            return text, tuple(dict.fromkeys([*writer.not_enforced, *dropped]))
        dropped.append(pointer)


def types_of(node: Mapping[str, Any]) -> frozenset[str]:
    """What `type` lets through; "number" brings "integer" with it."""
    named = node.get("type")
    if named is None:
        return ALL_TYPES
    found = {named} if isinstance(named, str) else set(named)
    return frozenset(found | {"integer"} if "number" in found else found)


def type_list(types: frozenset[str]) -> list[str]:
    """For `type`, without what "number" says already."""
    return sorted(types - {"integer"} if "number" in types else types)


class Writer:
    """Writes the parts of one document. `schema` gives a part's new form; extra conditions join by allOf."""

    def __init__(
        self, document: Document, *, best_effort: bool = False, dropped: frozenset[str] = frozenset()
    ) -> None:
        self.document = document
        self.best_effort = best_effort
        self.dropped = dropped  # JSON pointers of keywords that are left out
        self.visited: dict[str, Any] = {}  # JSON pointer -> schema that was written
        self.not_enforced: list[str] = []
        self._names: dict[int, str] = {}  # id() of a schema that is referred to -> its name in $defs
        self._pending: list[Any] = []
        self._defs: dict[str, Schema] = {}
        self._open: list[int] = []  # id() of schemas that stand where they were referred to
        self._num_opened = 0
        self._steps: dict[Decimal, str] = {}  # multipleOf -> where
        self._has_open_names = False  # some object takes keys besides those that it names
        self._needs_escapes: list[str] = []  # constants that cannot be written without \u

    def grammar(self, options: ConstraintOptions, part: tuple[Any, str] | None = None) -> str:
        """`part`: a schema and its place, when it is not the whole."""
        root = self.schema(*(part or (self.document.root, "")))
        while self._pending:
            node = self._pending.pop()
            self._defs[self._names[id(node)]] = self.schema(node, self.document.pointers[id(node)])
        schema_numbers.check_together(self._steps)
        if self._needs_escapes and self._has_open_names:
            message = "a control character that needs \\u is not enforced beside keys that are not declared"
            raise ConstraintError("unsupported_schema", message, self._needs_escapes[0])
        if root is False:
            raise ConstraintError("bad_schema", "no value fits the schema", "")
        places = {name: self.document.pointers[i] for i, name in self._names.items()}
        check_finite(root, self._defs, places)
        check_together(root, self._defs, places)
        written: dict[str, Any] = {} if root is True else dict(root)
        if self._defs:
            written["$defs"] = self._defs
        guidance: dict[str, Any] = (
            {"whitespace_flexible": False}
            if options.json_whitespace == "compact"
            else {"whitespace_pattern": _BOUNDED}
        )
        if not self._needs_escapes:
            guidance["json_allowed_escapes"] = _ESCAPES
        written["x-guidance"] = guidance
        return json.dumps({"grammars": [{"json_schema": written}]}, ensure_ascii=False, separators=(",", ":"))

    def lacks(self, pointer: str, message: str) -> None:
        """Refuses, or under best effort goes on without."""
        if not self.best_effort:
            raise ConstraintError("unsupported_schema", message, pointer)
        self.not_enforced.append(pointer)

    # ---- one schema ---------------------------------------------------------------------------------------

    def schema(self, node: Any, pointer: str) -> Schema:
        if isinstance(node, bool):
            return node
        self.visited[pointer] = node
        if self.dropped:
            node = {key: value for key, value in node.items() if f"{pointer}/{key}" not in self.dropped}
        if self.document.draft == 7 and "$ref" in node:  # draft 7 ignores what stands beside it
            return self.reference(node, "$ref", pointer)
        out: dict[str, Any] = {}
        extra: list[Schema] = []
        if "type" in node:
            out["type"] = node["type"]
        self._values(node, out, pointer)
        self._numbers(node, out, extra, pointer)
        self._strings(node, out, extra, pointer)
        self._arrays(node, out, extra, pointer)
        self._has_open_names |= schema_objects.write(self, node, out, extra, pointer)
        plain = {key: value for key, value in out.items() if key not in ("const", "enum")}
        joined: dict[str, Any] = {key: out[key] for key in ("const", "enum") if key in out}
        self._combined(node, joined, extra, pointer)
        if any(part is False for part in extra) or out.get("enum") is False:
            return False
        extra = [part for part in extra if part is not True and part != {}]
        if extra:
            joined["allOf"] = extra
        names = list(node)
        comes_first = any(
            key in names and "properties" in names and names.index(key) < names.index("properties")
            for key in ("$ref", "allOf")
        )
        return {**joined, **plain} if comes_first else {**plain, **joined}

    def reference(self, node: Mapping[str, Any], key: str, pointer: str) -> Schema:
        target = self.document.target(node, node[key], f"{pointer}/{key}")
        if isinstance(target, bool):
            return target
        name = self._names.get(id(target))
        if name is None:
            name = self._names[id(target)] = str(len(self._names))
            self._pending.append(target)
        return {"$ref": f"#/$defs/{name}"}

    def resolved(self, node: Any, pointer: str) -> tuple[Any, str]:
        """The schema behind a chain of plain references."""
        for _ in range(50):
            if not isinstance(node, dict) or "$ref" not in node:
                break
            if not node.keys() <= _REF_AND_WORDS and self.document.draft == 2020:
                break
            node = self.document.target(node, node["$ref"], f"{pointer}/$ref")
            pointer = "" if isinstance(node, bool) else self.document.pointers[id(node)]
        return node, pointer

    # ---- values -------------------------------------------------------------------------------------------

    def _values(self, node: Mapping[str, Any], out: dict[str, Any], pointer: str) -> None:
        if "const" in node:
            self.constant(node["const"], f"{pointer}/const")
            out["const"] = node["const"]
        if "enum" in node:
            for i, value in enumerate(node["enum"]):
                self.constant(value, f"{pointer}/enum/{i}")
            once = {json.dumps(value, sort_keys=True): value for value in node["enum"]}
            out["enum"] = list(once.values()) or False

    def constant(self, value: Any, pointer: str) -> None:
        """Can the engine write just this value?"""
        if isinstance(value, str):
            if any((char < " " and char not in "\n\r\b\t\f") or char == "\x7f" for char in value):
                self._needs_escapes.append(pointer)
        elif isinstance(value, list):
            for item in value:
                self.constant(item, pointer)
        elif isinstance(value, dict):
            for item in value.values():
                self.constant(item, pointer)
        elif is_number(value):
            schema_numbers.check_constant(value, pointer)

    def _numbers(
        self, node: Mapping[str, Any], out: dict[str, Any], extra: list[Schema], pointer: str
    ) -> None:
        types = types_of(node)
        if not types & {"number", "integer"}:
            return
        only_integers = "number" not in types
        out |= schema_numbers.bounds(dict(node), pointer, only_integers=only_integers)
        if "multipleOf" not in node:
            return
        where = f"{pointer}/multipleOf"
        steps = schema_numbers.multiples(node["multipleOf"], where, only_integers=only_integers)
        self._steps |= {Decimal(repr(step)).normalize(): where for step in steps}
        if len(steps) == 1:
            out["multipleOf"] = steps[0]
            return
        others = type_list(types - {"number", "integer"})
        choices: list[Schema] = [{"type": "number", "multipleOf": step} for step in steps]
        extra.append({"anyOf": [*choices, *([{"type": others}] if others else [])]})

    # ---- strings ------------------------------------------------------------------------------------------

    def _strings(
        self, node: Mapping[str, Any], out: dict[str, Any], extra: list[Schema], pointer: str
    ) -> None:
        types = types_of(node)
        if "format" in node:
            self._format(node["format"], types, out, extra, f"{pointer}/format")
        if "string" not in types:
            return
        for key in ("minLength", "maxLength"):
            if key in node:
                out[key] = int(node[key])
        if "pattern" in node:
            self._add_patterns(self.patterns(node["pattern"], f"{pointer}/pattern"), out, extra)

    def patterns(self, pattern: str, pointer: str) -> tuple[str, ...]:
        try:
            return search_patterns(pattern)
        except ConstraintError as error:
            if error.code == "bad_schema":
                raise ConstraintError(error.code, error.message, pointer) from None
            self.lacks(pointer, error.message)
            return ()

    def _add_patterns(self, patterns: Iterable[str], out: dict[str, Any], extra: list[Schema]) -> None:
        for pattern in patterns:
            if "pattern" in out:
                extra.append({"pattern": pattern})
            else:
                out["pattern"] = pattern

    def _format(
        self, name: str, types: frozenset[str], out: dict[str, Any], extra: list[Schema], pointer: str
    ) -> None:
        if name in formats.PATTERNS:
            if "string" in types:
                self._add_patterns([f"^(?:{formats.PATTERNS[name]})$"], out, extra)
        elif name in formats.RANGES:
            if types & {"number", "integer"}:
                low, high = formats.RANGES[name]
                extra.append({"minimum": low, "maximum": high})
        elif name not in formats.NO_MATTER and "string" in types:
            self.lacks(pointer, f"the format {name[:60]!r} is not enforced")

    # ---- arrays -------------------------------------------------------------------------------------------

    def _arrays(
        self, node: Mapping[str, Any], out: dict[str, Any], extra: list[Schema], pointer: str
    ) -> None:
        if "array" not in types_of(node):
            return
        for key in ("minItems", "maxItems"):
            if key in node:
                out[key] = int(node[key])
        first, rest = ("prefixItems", "items")
        if self.document.draft == 7 and isinstance(node.get("items"), list):
            first, rest = ("items", "additionalItems")
        if isinstance(node.get(first), list):
            out["prefixItems"] = [
                self.schema(part, f"{pointer}/{first}/{i}") for i, part in enumerate(node[first])
            ]
        if rest in node:
            out["items"] = self.schema(node[rest], f"{pointer}/{rest}")
        self._unique(node, out, pointer)
        self._contains(node, out, extra, pointer)
        if "unevaluatedItems" in node and node["unevaluatedItems"] is not True:
            schema_objects.unevaluated_items(self, node, extra, pointer)

    def _unique(self, node: Mapping[str, Any], out: dict[str, Any], pointer: str) -> None:
        if node.get("uniqueItems") is not True:
            return
        most = out.get("maxItems")
        if out.get("items") is False:
            places = len(out.get("prefixItems", ()))
            most = places if most is None else min(most, places)
        if most is None or most > 1:
            self.lacks(f"{pointer}/uniqueItems", "uniqueItems is not enforced for more than one item")

    def _contains(
        self, node: Mapping[str, Any], out: dict[str, Any], extra: list[Schema], pointer: str
    ) -> None:
        if "contains" not in node:
            return
        least = int(node.get("minContains", 1)) if self.document.draft == 2020 else 1
        most = node.get("maxContains") if self.document.draft == 2020 else None
        what = node["contains"]
        if what is True or what == {}:
            out["minItems"] = max(least, out.get("minItems", 0))
            if most is not None:
                out["maxItems"] = min(int(most), out.get("maxItems", int(most)))
        elif what is False:
            if least:
                extra.append({"type": type_list(ALL_TYPES - {"array"})})
        elif least or most is not None:
            self.lacks(f"{pointer}/contains", "contains is not enforced")

    # ---- schemas in schemas -------------------------------------------------------------------------------

    def _combined(
        self, node: Mapping[str, Any], out: dict[str, Any], extra: list[Schema], pointer: str
    ) -> None:
        for key in ("$ref", "$dynamicRef"):
            if key not in node:
                continue
            if key == "$dynamicRef" and len(self.document.resources) > 1 and self.document.draft == 2020:
                self.lacks(f"{pointer}/{key}", "$dynamicRef between schemas with an $id is not enforced")
                continue
            found = self.reference(node, key, pointer)
            if isinstance(found, bool) or "$ref" in out:
                extra.append(found)
            else:
                out["$ref"] = found["$ref"]
        if "$recursiveRef" in node and self.document.draft == 2020:
            self.lacks(f"{pointer}/$recursiveRef", "$recursiveRef is not enforced")
        if "allOf" in node:
            extra += [self.schema(part, f"{pointer}/allOf/{i}") for i, part in enumerate(node["allOf"])]
        if "anyOf" in node:
            extra.append(
                {"anyOf": [self.schema(part, f"{pointer}/anyOf/{i}") for i, part in enumerate(node["anyOf"])]}
            )
        if "oneOf" in node:
            extra.append(self._one_of(node["oneOf"], f"{pointer}/oneOf"))
        if "not" in node:
            opposite = schema_logic.negated(self, node["not"], f"{pointer}/not")
            if opposite is None:
                self.lacks(f"{pointer}/not", "not is enforced for types, constants, bounds and keys alone")
            else:
                extra.append(opposite)
        if "if" in node and ("then" in node or "else" in node):
            self._if(node, extra, pointer)

    def _one_of(self, parts: list[Any], pointer: str) -> Schema:
        """What is behind a reference is looked at by the engine only where it stands itself."""
        values = schema_logic.exactly_once(parts)
        if values is not None:
            for value in values:
                self.constant(value, pointer)
            return {"enum": values} if values else False
        written = []
        for i, part in enumerate(parts):
            node, where = self.resolved(part, f"{pointer}/{i}")
            if node is part or not self._may_open(node):
                written.append(self.schema(part, f"{pointer}/{i}"))
                continue
            self._open.append(id(node))
            written.append(self.schema(node, where))
            self._open.pop()
        return {"oneOf": written}

    def _may_open(self, node: Any) -> bool:
        """May a schema that is referred to be written where the reference stands?"""
        self._num_opened += 1
        return id(node) not in self._open and self._num_opened <= _MAX_OPENED

    def _if(self, node: Mapping[str, Any], extra: list[Schema], pointer: str) -> None:
        opposite = schema_logic.negated(self, node["if"], f"{pointer}/if")
        if opposite is None:
            self.lacks(f"{pointer}/if", "if is enforced for types, constants, bounds and keys alone")
            return
        condition = self.schema(node["if"], f"{pointer}/if")
        parts = [
            (condition, self.schema(node.get("then", True), f"{pointer}/then")),
            (opposite, self.schema(node.get("else", True), f"{pointer}/else")),
        ]
        extra.append({"anyOf": [{"allOf": list(pair)} for pair in parts]})
