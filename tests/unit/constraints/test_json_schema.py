"""JSON Schema: enforced exactly, or refused with the place and the keyword."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from deepinfer_cli.constraints.front import prepare
from deepinfer_cli.constraints.keywords import DRAFT_7, DRAFT_2020, read_document
from deepinfer_cli.constraints.types import CheckSpec, ConstraintError, ConstraintOptions, ConstraintSpec
from deepinfer_cli.constraints.validate import check_text
from tests.support.constraint_walk import cases, compiled, walk


def template(schema: Any, **options: Any) -> Any:
    source = schema if isinstance(schema, str) else json.dumps(schema)
    return compiled("json_schema", source, options=ConstraintOptions(**options))


def refusal(schema: Any) -> ConstraintError:
    with pytest.raises(ConstraintError) as refused:
        template(schema)
    return refused.value


@pytest.mark.parametrize("case", cases("schema.jsonl"), ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    try:
        made = template(case["schema"])
    except ConstraintError as refused:
        assert case["policy"] == "refuse", (refused.message, refused.pointer)
        return
    check = CheckSpec("json_schema", json.dumps(case["schema"]))
    for text in case["accept"]:
        assert walk(made, text) == "accepted", text
        assert check_text(check, text).outcome == "valid"
    for text in case["reject"]:
        assert walk(made, text) != "accepted", text


# (schema, accepted, not accepted)
ENFORCED: list[tuple[Any, list[str], list[str]]] = [
    # A key cannot hide behind another spelling of itself.
    ({"properties": {"a": {"type": "integer"}}}, ['{"a":1}', '{"b":"x"}'], ['{"\\u0061":"x"}', '{"a":"x"}']),
    # Bounds that are exclusive stay so where both have the same integer part.
    ({"type": "number", "exclusiveMinimum": 3, "maximum": 3.5}, ["3.1", "3.5"], ["3", "3.0", "3.6"]),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5}, ["0.1"], ["0", "-0", "0.5", "0.0"]),
    ({"type": "number", "minimum": -0.5, "exclusiveMaximum": 0}, ["-0.1"], ["-0", "0", "-0.6"]),
    ({"allOf": [{"exclusiveMinimum": 3}, {"type": "number", "maximum": 3.5}]}, ["3.1"], ["3"]),
    ({"type": "integer", "exclusiveMinimum": 3, "maximum": 9223372036854775807}, ["4"], ["3"]),
    # Multiples with fewer decimals than the step has.
    ({"type": "number", "multipleOf": 0.25}, ["0.25", "0.5", "1", "1.5", "-2.75"], ["0.3", "0.2", "0.26"]),
    ({"type": "number", "multipleOf": 0.01}, ["0.1", "12.34", "7"], ["0.001"]),
    ({"multipleOf": 0.5}, ['"x"', "1.5", "null"], ["0.25"]),
    ({"type": "integer", "multipleOf": 0.5}, ["3"], ["1.5"]),
    # Opposites.
    ({"type": "string", "not": {"const": "x"}}, ['""', '"y"', '"xx"'], ['"x"', "1"]),
    (
        {"type": "string", "not": {"enum": ["no", "none", ""]}},
        ['"n"', '"non"', '"nones"'],
        ['"no"', '"none"', '""'],
    ),
    ({"not": {"type": ["null", "string"]}}, ["1", "[]", "true"], ["null", '"x"']),
    ({"type": "integer", "not": {"const": 5}}, ["4", "6", "-5"], ["5"]),
    ({"type": "object", "not": {"required": ["a", "b"]}}, ["{}", '{"a":1}', '{"b":1}'], ['{"a":1,"b":1}']),
    ({"type": "integer", "not": {"minimum": 3}}, ["2"], ["3"]),
    (
        {
            "type": "object",
            "properties": {"k": {"enum": ["a", "b"]}, "v": {}},
            "required": ["k"],
            "additionalProperties": False,
            "if": {"properties": {"k": {"const": "a"}}, "required": ["k"]},
            "then": {"required": ["v"], "properties": {"v": {"type": "integer"}}},
            "else": {"properties": {"v": False}},
        },
        ['{"k":"a","v":1}', '{"k":"b"}'],
        ['{"k":"a"}', '{"k":"b","v":1}', '{"k":"a","v":"x"}'],
    ),
    # Keys that go together.
    (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "dependentRequired": {"a": ["b"]},
            "additionalProperties": False,
        },
        ["{}", '{"b":1}', '{"a":1,"b":2}'],
        ['{"a":1}'],
    ),
    (
        {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z]+$"},
            "additionalProperties": {"type": "integer"},
        },
        ["{}", '{"ab":1}'],
        ['{"A":1}', '{"a":"x"}', '{"":1}'],
    ),
    ({"type": "object", "propertyNames": {"enum": ["a", "b"]}}, ["{}", '{"a":1,"b":2}'], ['{"c":1}']),
    ({"type": "object", "propertyNames": {"maxLength": 2}}, ['{"ab":1}', '{"é":1}'], ['{"abc":1}']),
    (
        {
            "type": "object",
            "properties": dict.fromkeys("abcd", True),
            "additionalProperties": False,
            "minProperties": 3,
        },
        ['{"a":1,"b":1,"d":1}'],
        ['{"a":1,"b":1}', "{}"],
    ),
    (
        {"type": "object", "properties": {"a": True}, "maxProperties": 2},
        ['{"a":1,"x":1}'],
        ['{"a":1,"x":1,"y":1}'],
    ),
    # What other keywords have looked at.
    (
        {"allOf": [{"properties": {"a": True}}], "properties": {"b": True}, "unevaluatedProperties": False},
        ["{}", '{"a":1,"b":1}', '{"b":1,"a":1}'][:2],
        ['{"c":1}'],
    ),
    ({"prefixItems": [True], "unevaluatedItems": {"type": "null"}}, ["[1]", "[1,null]"], ["[1,2]"]),
    # One of.
    ({"oneOf": [{"const": 1}, {"const": 2}, {"enum": [2, 3]}]}, ["1", "3"], ["2"]),
    (
        {
            "$defs": {
                "cat": {"type": "object", "properties": {"t": {"const": "cat"}}, "required": ["t"]},
                "dog": {
                    "type": "object",
                    "properties": {"t": {"const": "dog"}, "n": {"type": "integer"}},
                    "required": ["t"],
                },
            },
            "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
        },
        ['{"t":"cat"}', '{"t":"dog","n":1}'],
        ['{"t":"cow"}', '{"t":"dog","n":"x"}'],
    ),
    (
        {
            "oneOf": [{"$ref": "#/$defs/t"}, {"type": "null"}],
            "$defs": {"t": {"type": "array", "items": {"$ref": "#"}}},
        },
        ["null", "[null,[[]]]"],
        ["1", "[1]"],
    ),
    # References.
    ({"$id": "https://e.org/a", "$defs": {"x": {"$id": "b", "type": "null"}}, "$ref": "b"}, ["null"], ["1"]),
    (
        {"$defs": {"a/b": {"type": "null"}, "c%d~": {"$ref": "#/$defs/a~1b"}}, "$ref": "#/$defs/c%25d~0"},
        ["null"],
        ["1"],
    ),
    (
        {"$dynamicAnchor": "n", "type": ["array", "null"], "items": {"$dynamicRef": "#n"}},
        ["[null,[]]"],
        ["[1]"],
    ),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "items": [{"type": "null"}],
            "additionalItems": False,
        },
        ["[null]", "[]"],
        ["[null,1]", "[1]"],
    ),
    # Formats keep to what the check of finished texts takes.
    (
        {"type": "string", "format": "date"},
        ['"2024-02-29"', '"2000-02-29"'],
        ['"2023-02-29"', '"1900-02-29"', '"0000-01-01"'],
    ),
    (
        {"type": "string", "format": "time"},
        ['"23:59:59Z"', '"00:00:00.5+01:00"'],
        ['"23:59:60Z"', '"24:00:00Z"'],
    ),
    ({"type": "string", "format": "hostname"}, ['"a-b.example"'], ['"xn--a"', '"-a"', '"a..b"']),
    (
        {"type": "string", "format": "uuid", "pattern": "^a"},
        ['"a23e4567-e89b-12d3-a456-426614174000"'],
        ['"123e4567-e89b-12d3-a456-426614174000"'],
    ),
    ({"type": "integer", "format": "int32"}, ["2147483647"], ["2147483648"]),
    ({"type": "integer", "format": "date"}, ["1"], ["1.5"]),
    # Patterns are searched for; both meanings of \\d hold.
    ({"type": "string", "pattern": "^\\d{2}$"}, ['"12"'], ['"٣٤"', '"1"']),
    ({"type": "string", "pattern": "^(?=.*\\d)(?=.*[a-z]).{3,}$"}, ['"a1b"'], ['"abc"', '"a1"']),
    # Constants.
    (
        {"enum": [1, True, "1", None, [0], {"a": 2.5}]},
        ["1", "true", '"1"', "null", "[0]", '{"a":2.5}'],
        ["0", "false", "[]"],
    ),
    ({"const": 'tab\tquote"'}, ['"tab\\tquote\\""'], ['"tab"']),
    ({"const": "nul\0"}, ['"nul\\u0000"'], ['"nul"']),
    (True, ["1", "[]"], [""]),
]


@pytest.mark.parametrize(("schema", "accept", "reject"), ENFORCED, ids=[str(i) for i in range(len(ENFORCED))])
def test_enforced(schema: Any, accept: list[str], reject: list[str]) -> None:
    made = template(schema)
    check = CheckSpec("json_schema", json.dumps(schema))
    for text in accept:
        assert walk(made, text) == "accepted", text
        assert check_text(check, text).outcome == "valid", text
    for text in reject:
        assert walk(made, text) != "accepted", text


# (schema, code, pointer, words)
REFUSED: list[tuple[Any, str, str | None, str]] = [
    ({"type": "objekt"}, "bad_schema", "/type", "objekt"),
    ({"type": "object", "require": ["a"]}, "bad_schema", "/require", "did you mean required?"),
    ({"propertys": {}}, "bad_schema", "/propertys", "did you mean properties?"),
    ({"items": {"maxlength": 3}}, "bad_schema", "/items/maxlength", "did you mean maxLength?"),
    ({"min_length": 3}, "bad_schema", "/min_length", "did you mean minLength?"),
    ({"properties": {"a/b": {"min": 3}}}, "bad_schema", "/properties/a~1b/min", "did you mean minimum?"),
    ({"type": "string", "nullable": True}, "bad_schema", "/nullable", "null"),
    ({"additionalItems": False}, "bad_schema", "/additionalItems", "write items"),
    ({"items": [{}]}, "bad_schema", "/items", "object, true or false"),
    (
        {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{}]},
        "bad_schema",
        "/prefixItems",
        "draft 7",
    ),
    ({"$schema": "http://json-schema.org/draft-04/schema#"}, "unsupported_schema", "/$schema", "2020-12"),
    ({"pattern": "[a-"}, "bad_schema", "/pattern", "regular expression"),
    ({"minLength": -1}, "bad_schema", "/minLength", "at least 0"),
    ({"required": ["a", "a"]}, "bad_schema", "/required", "repetition"),
    ({"anyOf": []}, "bad_schema", "/anyOf", "at least one"),
    ({"properties": {"a": 3}}, "bad_schema", "/properties/a", "object, true or false"),
    ({"multipleOf": 0}, "bad_schema", "/multipleOf", "above 0"),
    ({"type": "array", "uniqueItems": True}, "unsupported_schema", "/uniqueItems", "uniqueItems"),
    ({"type": "array", "contains": {"const": 7}}, "unsupported_schema", "/contains", "contains"),
    ({"not": {"pattern": "a"}}, "unsupported_schema", "/not", "not"),
    # The engine's time to meet patterns doubles with each.
    ({"allOf": [{"pattern": f"a.{{{i}}}"} for i in range(9)]}, "unsupported_schema", "", "8 patterns"),
    (
        {
            "items": {"$ref": "#/$defs/0"},
            "$defs": {
                str(i): {"pattern": f"a.{{{i}}}", "allOf": [{"$ref": f"#/$defs/{(i + 1) % 9}"}]}
                for i in range(8)
            }
            | {"8": {"anyOf": [{"maxLength": 90}, {"pattern": "b"}]}},
        },
        "unsupported_schema",
        "",
        "8 patterns",
    ),
    ({"if": {"pattern": "a"}, "then": False}, "unsupported_schema", "/if", "if"),
    ({"propertyNames": {"format": "date"}}, "unsupported_schema", "/propertyNames", "propertyNames"),
    (
        {"anyOf": [{"properties": {"a": True}}], "unevaluatedProperties": False},
        "unsupported_schema",
        "/unevaluatedProperties",
        "depends",
    ),
    ({"type": "string", "format": "phone"}, "unsupported_schema", "/format", "phone"),
    ({"pattern": "a\\b"}, "unsupported_schema", "/pattern", "\\b"),
    (
        {"patternProperties": {"^(?!x)a": {}}},
        "unsupported_schema",
        "/patternProperties/^(?!x)a",
        "look-ahead",
    ),
    ({"$ref": "https://example.org/schema"}, "unsupported_schema", "/$ref", "another document"),
    ({"$ref": "file:///etc/passwd"}, "unsupported_schema", "/$ref", "another document"),
    ({"oneOf": [{"$ref": "#"}, {"type": "null"}]}, "bad_schema", "", "without end"),
    ({"if": {"not": {"$ref": "#"}}}, "bad_schema", "", "without end"),
    (
        {"properties": {"x": {"items": {"oneOf": [{"minimum": 1, "type": "integer"}, {"type": "number"}]}}}},
        "unsupported_schema",
        "/properties/x/items/oneOf",
        "told apart",
    ),
    ({"patternProperties": {"a": {}, "b": {}}}, "unsupported_schema", "/patternProperties", "overlap"),
    ({"$ref": "#/$defs/nope"}, "bad_schema", "/$ref", "leads nowhere"),
    ({"minimum": 1e300}, "unsupported_schema", "/minimum", "2^53"),
    ({"const": 9007199254740993}, "unsupported_schema", "/const", "digits"),
    ({"enum": [0.1234567890123456789]}, "unsupported_schema", "/enum/0", "digits"),
    ({"multipleOf": 123457}, "unsupported_schema", "/multipleOf", "multipleOf"),
    (
        {"allOf": [{"multipleOf": 9001}, {"multipleOf": 7001}]},
        "unsupported_schema",
        "/allOf/0/multipleOf",
        "beside",
    ),
    ({"const": "\x01", "properties": {"a": {}}}, "unsupported_schema", "/const", "control character"),
    (False, "bad_schema", "", "no value fits"),
    ({"enum": []}, "bad_schema", "", "no value fits"),
    ({"type": "integer", "minimum": 5, "maximum": 4}, "bad_schema", "", "no value fits"),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}},
        "bad_schema",
        "",
        "never end",
    ),
    (
        {
            "$defs": {"n": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/n"}}},
            "properties": {"a": {"$ref": "#/$defs/n"}},
        },
        "bad_schema",
        "/$defs/n",
        "never end",
    ),
    ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "bad_schema", "/$defs/a", "without end"),
]


@pytest.mark.parametrize(
    ("schema", "code", "pointer", "words"), REFUSED, ids=[str(i) for i in range(len(REFUSED))]
)
def test_refused(schema: Any, code: str, pointer: str | None, words: str) -> None:
    refused = refusal(schema)
    assert (refused.code, refused.pointer) == (code, pointer)
    assert words in refused.message
    assert "\n" not in refused.message


DEEP = 10_000
TOO_MUCH: list[tuple[str, str]] = [
    ('{"a":' * DEEP + "1" + "}" * DEEP, "100 levels"),
    ("[" * 200_000, "100 levels"),
    ('{"items":' * 60 + "true" + "}" * 60, ""),
    ('{"items":' * 120 + "true" + "}" * 120, "100 levels"),
    ('{"enum":[' + ",".join(map(str, range(20_000))) + "]}", "10,000 enum values"),
    ('{"enum":[' + ",".join(map(str, range(1_000_000))) + "]}", "at most 1,048,576"),
    ('{"title":"' + "x" * (1 << 20) + '"}', "at most 1,048,576"),
    ('{"const":"\ud800"}', "lone surrogate"),
    ('{"const":"\\ud800"}', "lone surrogate"),
    ('{"minimum":1' + "0" * 5000 + "}", "too long"),
    ('{"minimum":1e999}', "too large"),
    ('{"minimum":NaN}', "NaN"),
    ('{"type":"string","type":"null"}', "twice"),
    ('{"type":', "not JSON"),
    ('{"pattern":"((a{100}){100}){100}"}', "10,000"),
    (json.dumps({"properties": {f"p{i}": {} for i in range(3000)}}), "at most 2,000"),
    (json.dumps({"patternProperties": {f"^{i}z": {} for i in range(60)}}), "at most 50"),
    (
        json.dumps({"prefixItems": [{"properties": {f"p{i}": {} for i in range(2000)}} for _ in range(6)]}),
        "more than 10,000 keys",
    ),
    (json.dumps({"enum": [{"a": i} for i in range(3000)]}), "too many alternatives"),
    ('{"allOf":[' + ",".join(['{"anyOf":[{"minLength":1},{"maxItems":3}]}'] * 40) + "]}", "too large"),
]


@pytest.mark.parametrize(("source", "words"), TOO_MUCH, ids=[str(i) for i in range(len(TOO_MUCH))])
def test_too_much_is_refused(source: str, words: str) -> None:
    if not words:
        assert template(source)
        return
    with pytest.raises(ConstraintError, match=words):
        template(source)


def test_white_space() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array"}}}
    bounded = template(schema)
    for text in ('{"a":[1,2]}', '{ "a" : [ 1, 2 ] }', '{\n  "a": [\n\t\t1,\n    2\n  ]\n}'):
        assert walk(bounded, text) == "accepted", text
    for text in (' {"a":[]}', '{"a":[]} ', '{"a":  []}', '{"a":\n\n[]}', '{"a":\n' + " " * 41 + "[]}"):
        assert walk(bounded, text) == "refused", text
    compact = template(schema, json_whitespace="compact")
    assert walk(compact, '{"a":[1,2]}') == "accepted"
    assert walk(compact, '{"a": [1,2]}') == "refused"
    number = template({"type": "integer"})
    assert walk(number, "12") == "accepted" and walk(number, "12 ") == "refused"


def test_best_effort_lists_what_it_leaves_out() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "uniqueItems": True, "items": {"type": "integer"}},
            "b": {"type": "string", "format": "phone"},
        },
        "required": ["a"],
    }
    spec = ConstraintSpec("json_schema", json.dumps(schema))
    prepared = prepare(spec, ConstraintOptions(best_effort=True))
    assert prepared.not_enforced == ("/properties/a/uniqueItems", "/properties/b/format")
    made = template(schema, best_effort=True)
    assert walk(made, '{"a":[1,1],"b":"x"}') == "accepted"
    assert walk(made, '{"a":["x"]}') == "refused"


def test_best_effort_with_what_the_engine_refuses() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 3}]},
            "b": {"patternProperties": {"x": {"type": "null"}, "y": {}}},
        },
        "required": ["a"],
    }
    spec = ConstraintSpec("json_schema", json.dumps(schema))
    prepared = prepare(spec, ConstraintOptions(best_effort=True))
    assert set(prepared.not_enforced) == {"/properties/a/oneOf", "/properties/b/patternProperties"}
    assert walk(template(schema, best_effort=True), '{"a":3}') == "accepted"


def test_a_json_object() -> None:
    made = compiled("json_object", "")
    assert walk(made, '{"a": [1, {"b": null}]}') == "accepted"
    assert walk(made, "[]") == "refused"


def test_keys_come_in_the_schema_s_order() -> None:
    made = template('{"type":"object","properties":{"z":{},"a":{}},"required":["a","z"]}')
    assert walk(made, '{"z":1,"a":2}') == "accepted"
    assert walk(made, '{"a":2,"z":1}') == "refused"


VALUES = [
    None, True, 0, -1, 1.0, 1.5, "a", "", "string", "[a-", [], ["a"], ["a", "a"], [1], ["string"], [{}], [3],
    ["string", "string"], {}, {"a": 1}, {"a": []}, {"a": ["b"]}, {"a": ["b", "b"]}, {"a": {}}, {"a": True},
    {"[a-": {}},
]  # fmt: skip


@pytest.mark.parametrize("draft", [2020, 7])
def test_keywords_are_checked_as_the_meta_schemas_do(draft: int) -> None:
    validator = jsonschema.Draft202012Validator if draft == 2020 else jsonschema.Draft7Validator
    dialect = {} if draft == 2020 else {"$schema": "http://json-schema.org/draft-07/schema#"}
    kinds = DRAFT_2020 if draft == 2020 else DRAFT_7
    judged_elsewhere = {
        "$schema",
        "$ref",
        "$dynamicRef",
        "$vocabulary",
        "$recursiveRef",
        "$recursiveAnchor",
        "$id",
    }
    for key in kinds.keys() - judged_elsewhere:
        for value in VALUES:
            schema = {**dialect, key: value}
            try:
                validator.check_schema(schema)
                is_valid = True
            except jsonschema.SchemaError:
                is_valid = False
            try:
                read_document(schema)
                is_taken = True
            except ConstraintError as refused:
                assert refused.code == "bad_schema"
                is_taken = False
            assert is_taken == is_valid, (key, value)
