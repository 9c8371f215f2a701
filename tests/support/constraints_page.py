# ruff: noqa: E501 - a row of a Markdown table is one line
"""docs/reference/constraints.md: what is enforced, refused and left to the check, found by trying.

    python -m tests.support.constraints_page docs/reference/constraints.md

Every line is the answer of this build to the constraint that stands in it. test_constraints_page.py fails
when the page says something else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepinfer_cli.constraints.backend import ConstraintBackend
from deepinfer_cli.constraints.cache import Compiled, ConstraintCompiler, Result
from deepinfer_cli.constraints.ebnf.grammar import MAX_COUNT, MAX_NESTING, MAX_NODES
from deepinfer_cli.constraints.ebnf.lark import MAX_ALTERNATIVES, MAX_LITERAL_CHARS
from deepinfer_cli.constraints.front import MAX_UNICODE_CLASSES
from deepinfer_cli.constraints.together import MAX_TOGETHER
from deepinfer_cli.constraints.types import ConstraintOptions, ConstraintSpec
from deepinfer_cli.models.fake import load_fake

_CASES = Path(__file__).resolve().parents[1] / "cases" / "structured"
_STRING = {"type": "string"}
# What people write, keyword by keyword.
SCHEMAS: tuple[tuple[str, Any], ...] = (
    ("type", {"type": "string"}),
    ("type (several)", {"type": ["integer", "null"]}),
    ("enum", {"enum": ["a", 1, None]}),
    ("const", {"const": {"kind": "v1"}}),
    ("boolean schema", True),
    ("properties, required", {"type": "object", "properties": {"a": _STRING}, "required": ["a"]}),
    ("additionalProperties: false", {"type": "object", "properties": {"a": _STRING}, "additionalProperties": False}),
    ("additionalProperties (schema)", {"type": "object", "additionalProperties": {"type": "integer"}}),
    ("required (not declared)", {"type": "object", "required": ["a"]}),
    ("patternProperties", {"type": "object", "patternProperties": {"^x-": _STRING}}),
    ("patternProperties (overlapping)", {"type": "object", "patternProperties": {"a": _STRING, "b": {"type": "integer"}}}),
    ("minProperties, maxProperties", {"type": "object", "minProperties": 1, "maxProperties": 3}),
    ("maxProperties with optional keys", {"type": "object", "properties": {"a": _STRING, "b": _STRING}, "maxProperties": 1}),
    ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}),
    ("dependentRequired", {"type": "object", "dependentRequired": {"a": ["b"]}}),
    ("dependentSchemas", {"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}}),
    ("dependencies (draft 7)", {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}),
    ("items", {"type": "array", "items": {"type": "integer"}}),
    ("prefixItems", {"type": "array", "prefixItems": [_STRING, {"type": "integer"}], "items": False}),
    ("items (draft 7 list)", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [_STRING], "additionalItems": False}),
    ("minItems, maxItems", {"type": "array", "items": {}, "minItems": 1, "maxItems": 3}),
    ("uniqueItems", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    ("contains", {"type": "array", "contains": {"const": 1}}),
    ("minContains, maxContains", {"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 3}),
    ("unevaluatedItems", {"type": "array", "unevaluatedItems": False}),
    ("unevaluatedProperties", {"type": "object", "unevaluatedProperties": False}),
    ("minimum, maximum", {"type": "integer", "minimum": 0, "maximum": 10}),
    ("exclusiveMinimum, exclusiveMaximum", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    ("bounds beyond 64 bits", {"type": "integer", "minimum": 0, "maximum": 10**30}),
    ("multipleOf (whole)", {"type": "integer", "multipleOf": 5}),
    ("multipleOf (fraction)", {"type": "number", "multipleOf": 0.25}),
    ("minLength, maxLength", {"type": "string", "minLength": 1, "maxLength": 8}),
    ("pattern", {"type": "string", "pattern": "^[A-Z]{3}$"}),
    ("pattern (not anchored)", {"type": "string", "pattern": "[0-9]"}),
    ("pattern with maxLength", {"type": "string", "pattern": "^[A-Z]+$", "maxLength": 3}),
    ("pattern with look-around", {"type": "string", "pattern": "^(?!x)[a-z]+$"}),
    *((f"format: {name}", {"type": "string", "format": name}) for name in (
        "date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uuid", "uri",
        "uri-reference", "iri", "uri-template", "json-pointer", "relative-json-pointer", "regex", "no-such-format")),
    ("allOf", {"allOf": [{"type": "integer"}, {"minimum": 3}]}),
    ("anyOf", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    ("oneOf (disjoint)", {"oneOf": [{"type": "integer"}, {"type": "string"}]}),
    ("oneOf (overlapping)", {"oneOf": [{"type": "integer", "multipleOf": 3}, {"type": "integer", "multipleOf": 5}]}),
    ("not", {"not": {"type": "integer"}}),
    ("if, then, else", {"if": {"required": ["a"]}, "then": {"required": ["b"]}}),
    ("$ref, $defs", {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}),
    ("$ref (recursive)", {"type": "object", "properties": {"next": {"$ref": "#"}}}),
    ("$anchor", {"$ref": "#a", "$defs": {"x": {"$anchor": "a", "type": "integer"}}}),
    ("$ref (remote)", {"$ref": "https://example.com/schema.json"}),
    ("$id (nested)", {"$defs": {"x": {"$id": "https://example.com/x", "type": "integer"}}, "$ref": "https://example.com/x"}),
    ("$dynamicRef", {"$dynamicRef": "#a", "$defs": {"x": {"$dynamicAnchor": "a", "type": "integer"}}}),
    ("title, description, default, examples", {"type": "integer", "title": "t", "description": "d", "default": 1, "examples": [2]}),
    ("contentEncoding", {"type": "string", "contentEncoding": "base64"}),
    ("a slip", {"type": "object", "require": ["a"]}),
    ("an unknown keyword", {"type": "integer", "x-mine": 1}),
    ("nothing valid", {"type": "integer", "minimum": 5, "maximum": 1}),
)  # fmt: skip

_INTRO = """<!-- Generated by `make docs`: the answers of this build. -->
# Constraints

A row asks for one under `constraint`, or in one of the other spellings that [rows](rows.md) lists; the run asks for all of its rows with
`--json-schema`, `--regex`, `--choice`, `--grammar`, or `constraint` in its config. What a text then is, and what can become of a
row, is in [how to make every text fit](../how-to/constrain.md).

*Enforced* means exactly: no text that breaks the keyword can be generated, and none that the engine could reach otherwise is lost but
where a line says so. *Refused* means before the row runs, by name. *Checked* stands for `--schema-best-effort`: the keyword is left
out while the text is made, the row lists it under `not_enforced`, and the finished text is validated against the whole schema.

Keys of an object are generated in the order of `properties`, additional ones last. JSON does not mind, but a prompt that shows
another order works against the mask: show keys in the schema's order.

The draft is that of `$schema`, else 2020-12. White space is bounded (`--json-whitespace compact`: none), special tokens never stand
inside a text, and doubled keys are never accepted.

## JSON Schema

| Keyword | Example | This build | Best effort |
| --- | --- | --- | --- |
"""

_SUITE = """
### The official test suite

Every instance of the required tests of JSON-Schema-Test-Suite, walked token by token, compact and spaced. *Right*: taken where it is
valid and not where it is invalid. *Refused* schemas do not run. *Lost* instances are valid, but the mask does not allow them.

| Keyword | Draft | Tests | Right | Refused | Lost | Wrong taken |
| --- | --- | --- | --- | --- | --- | --- |
"""

_REGEX = """
## Regular expressions

Python's syntax; the whole text has to match. `.` is any character but a line feed, and `\\d`, `\\w`, `\\s` mean all of Unicode.

| Case | Pattern | This build |
| --- | --- | --- |
"""

_GRAMMARS = f"""
## Grammars

`grammar_syntax` names the notation, and `auto` finds it out. The start is `root` in GBNF, `start` in Lark, else the first rule.

- GBNF, W3C EBNF and ISO 14977 are translated exactly: the engine takes the texts of the grammar and no others. It reads words and runs of characters in one piece wherever that changes nothing; a grammar that is too large for this to be found out (about a second's work) is read one character at a time, which is slower and just as exact.
- GBNF: a rule goes on until a line begins with the next name and `::=`; `{{,n}}` and `_` in names are taken, too. W3C: `A - B` only where both are single characters; no escapes. ISO: names of several words; special sequences `? … ?` are refused.
- Lark passes through to the engine, whose own reading of it is greedy: `/[a-z]+/ "ab"` takes no text. Refused are tokens by name (`<|…|>`), `%json` and other directives but `%ignore` and `%import common.…`, other grammars (`@…`), attributes but `[lazy]`, and `~X` that does not stand behind `&`. Finished texts of it are checked by the engine as well, byte by byte; those of the other notations by a recogniser of our own, and where that takes too many steps the row carries `validation_timeout`.
- Refused with line and column: rules that are not defined, there twice, or that no text can end. At most 1 MiB, {MAX_NODES:,} symbols, brackets {MAX_NESTING:,} deep, counts of {MAX_COUNT:,}; in Lark {MAX_ALTERNATIVES:,} alternatives, texts and patterns of {MAX_LITERAL_CHARS:,} characters, and {MAX_TOGETHER - 1} signs `&` in a terminal and what it is made of. A schema's text has to fit at most {MAX_TOGETHER} patterns and formats at once, a regular expression has at most {MAX_TOGETHER - 1} look-aheads. At most {MAX_UNICODE_CLASSES:,} classes of Unicode characters, of which `\\w` is three and `\\d` or a category two.

| Case | Notation | This build |
| --- | --- | --- |
"""


def _cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_CASES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{_cell(text)}{fence}"


def _said(result: Result) -> str:
    if isinstance(result, Compiled):
        return "enforced"
    where = "" if result.pointer is None else f" at `{result.pointer or '/'}`"
    message = _cell(result.message).replace("](", "]\\(")  # a pattern is no link
    return f"refused ({result.code}){where}: {message}"


def _best_effort(result: Result, lenient: Result) -> str:
    if isinstance(result, Compiled):
        return ""
    if isinstance(lenient, Compiled):
        return f"checked: {', '.join(f'`{_cell(p)}`' for p in lenient.prepared.not_enforced)}"
    return "refused"


def _suite() -> Iterator[str]:
    counts = json.loads(
        (_CASES.parents[1] / "conformance" / "json_schema_suite.json").read_text(encoding="utf-8")
    )
    columns = ("tests", "right", "refused to compile", "valid refused", "wrong accepted")
    for draft, keywords in counts.items():
        for keyword, found in keywords.items():
            yield f"| {keyword} | {draft.removeprefix('draft')} | {' | '.join(str(found[c]) for c in columns)} |"
        total = (str(sum(found[c] for found in keywords.values())) for c in columns)
        yield f"| **all** | {draft.removeprefix('draft')} | {' | '.join(total)} |"


def page() -> str:
    backend = ConstraintBackend(load_fake("fake"))
    strict = ConstraintCompiler(backend, ConstraintOptions())
    lenient = ConstraintCompiler(backend, ConstraintOptions(best_effort=True))

    def schemas() -> Iterator[str]:
        seen = [json.dumps(schema) for _, schema in SCHEMAS]
        cases = [(c["feature"], c["schema"]) for c in _cases("schema") if json.dumps(c["schema"]) not in seen]
        for name, schema in (*SCHEMAS, *cases):
            text = json.dumps(schema, ensure_ascii=False)
            spec = ConstraintSpec("json_schema", text)
            result = strict.get(spec)
            shown = text if len(text) <= 160 else text[:157] + "..."
            yield f"| {name} | {_code(shown)} | {_said(result)} | {_best_effort(result, lenient.get(spec))} |"

    regex = (
        f"| {c['feature']} | {_code(c['pattern'])} | {_said(strict.get(ConstraintSpec('regex', c['pattern'])))} |"
        for c in _cases("regex")
    )
    grammars = (
        f"| {c['id']} | {c['dialect']} | {_said(strict.get(ConstraintSpec('grammar', c['grammar'], c['dialect'])))} |"
        for c in _cases("ebnf")
    )
    return "\n".join(
        [
            _INTRO.rstrip("\n"),
            *schemas(),
            _SUITE.rstrip("\n"),
            *_suite(),
            _REGEX.rstrip("\n"),
            *regex,
            _GRAMMARS.rstrip("\n"),
            *grammars,
            "",
        ]
    )


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page(), encoding="utf-8")
    print(f"wrote {path}")
