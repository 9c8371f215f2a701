"""Checks of finished texts: exact numbers, doubled keys, drafts, and JSON that fits on one line."""

from __future__ import annotations

import json

import pytest

from deepinfer_cli.constraints.json_value import JsonError, one_line, parse_json
from deepinfer_cli.constraints.schema_check import is_multiple
from deepinfer_cli.constraints.types import CheckSpec
from deepinfer_cli.constraints.validate import check_text
from deepinfer_cli.results.json_text import json_string

SCHEMA_VERDICTS = [
    # schema, text, valid
    ({"type": "number", "multipleOf": 0.1}, "0.3", True),  # 0.3 / 0.1 is no whole number in floats
    ({"type": "number", "multipleOf": 0.1}, "0.35", False),
    ({"type": "number", "multipleOf": 0.01}, "1.1e3", True),
    ({"type": "integer", "multipleOf": 3}, "300000000000000000000000000000000000001", False),
    ({"type": "number", "maximum": 0.1}, "0.10000000000000000001", False),  # the same float
    ({"type": "number", "maximum": 0.1}, "0.10", True),
    ({"exclusiveMinimum": 5}, "5", False),
    ({"exclusiveMinimum": 5}, "5.000000000000000000001", True),
    ({"minimum": 1}, "1e-400", False),
    ({"maximum": 1}, "1e400", False),
    ({"type": "integer"}, "1.0", True),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"multipleOf": 0.1}}}, "0.3", True),
    # The root named again: it must be checked by the same exact rules.
    (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {"n": {"multipleOf": 0.1}, "next": {"$ref": "#"}},
        },
        '{"next":{"next":{"n":0.3}}}',
        True,
    ),
    # `dependencies` is of draft 7, and unknown to 2020-12.
    (
        {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}},
        '{"a":1}',
        False,
    ),
    ({"dependencies": {"a": ["b"]}}, '{"a":1}', True),
    ({"format": "date"}, '"2026-02-30"', False),
    ({"format": "date-time"}, '"2026-02-03T04:05:06Z"', True),
    ({"format": "iri"}, '"http://\\u00e9.example/"', True),
    ({"format": "iri"}, '"no iri"', False),
    ({"uniqueItems": True}, "[1,2,1]", False),
    ({}, '{"a":1,"b":2,"a":3}', False),
    ({}, '[{"a":{"b":1,"b":1}}]', False),
    ({}, "NaN", False),
    ({}, '{"a":', False),
    ({}, "", False),
    ({}, "1 2", False),
]


@pytest.mark.parametrize(("schema", "text", "valid"), SCHEMA_VERDICTS, ids=str)
def test_schemas(schema: dict[str, object], text: str, valid: bool) -> None:
    verdict = check_text(CheckSpec("json_schema", json.dumps(schema)), text)
    assert verdict.outcome == ("valid" if valid else "invalid"), verdict
    assert (verdict.parsed is not None) == valid
    assert bool(verdict.message) != valid


def test_a_violation_says_where() -> None:
    schema = {"properties": {"a": {"items": {"type": "string"}}}}
    verdict = check_text(CheckSpec("json_schema", json.dumps(schema)), '{"a":["x",7]}')
    assert verdict.message == "$.a[1]: 7 is not of type 'string' (type)"


def test_references_do_not_leave_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", no_network)
    monkeypatch.setattr("socket.getaddrinfo", no_network)
    for reference in ("http://example.com/schema.json", "file:///etc/passwd"):
        verdict = check_text(CheckSpec("json_schema", json.dumps({"$ref": reference})), "1")
        assert verdict.outcome == "unchecked"
        assert "Unresolvable" in verdict.message


@pytest.mark.parametrize(
    ("kind", "source", "good", "bad"),
    [
        ("regex", "[a-z]+", "abc", "abc\n"),  # the whole text, its end included
        ("regex", "a|ab", "ab", "abb"),
        ("choice", '["yes","no"]', "no", "n"),
        ("json_object", "", '{"a":[]}', "[]"),
    ],
)
def test_other_kinds(kind: str, source: str, good: str, bad: str) -> None:
    assert check_text(CheckSpec(kind, source), good).outcome == "valid"
    assert check_text(CheckSpec(kind, source), bad).outcome == "invalid"


def test_only_json_constraints_have_a_value() -> None:
    assert check_text(CheckSpec("regex", "1"), "1").parsed is None
    assert check_text(CheckSpec("json_object", ""), ' {"a" :\n1 }').parsed == '{"a":1}'


def test_a_check_that_fails_says_so_and_passes_nothing() -> None:
    assert check_text(CheckSpec("regex", "[a-"), "a").outcome == "unchecked"
    assert check_text(CheckSpec("no such kind", ""), "a").outcome == "unchecked"


@pytest.mark.parametrize(
    ("value", "step", "wanted"),
    [
        ("0.3", "0.1", True),
        ("1e10000000", "3", False),  # nobody writes that power out
        ("3e10000000", "3", True),
        ("1e-10000000", "1e-3", False),
        ("0", "1e-10000000", True),
        ("0.0", "7", True),
        ("-4.5", "1.5", True),
        ("1", "0.3", False),
        ("12345678901234567890.5", "0.5", True),
    ],
)
def test_multiples(value: str, step: str, wanted: bool) -> None:
    assert is_multiple(parse_json(value), parse_json(step)) is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{ "a" : [ 1 , 2.50 ,\n-0 ] }', '{"a":[1,2.50,-0]}'),
        ('" a \\" b\\\\" ', '" a \\" b\\\\"'),
        ('"\u2028\u0085"', '"\\u2028\\u0085"'),
        ('"\\ud83d\\ude00"', '"\\ud83d\\ude00"'),
        ('"\\ud83d"', '"\\ufffd"'),
        ('"\\ude00\\ud83d x"', '"\\ufffd\\ufffd x"'),
        ('"\\ud83d\\ud83d\\ude00"', '"\\ufffd\\ud83d\\ude00"'),
        ('"\\ud83d\\\\ude00"', '"\\ufffd\\\\ude00"'),  # a backslash and the letters
        ("12345678901234567890.123e+9", "12345678901234567890.123e+9"),
    ],
)
def test_one_line(text: str, wanted: str) -> None:
    assert one_line(text) == wanted
    assert one_line(wanted) == wanted
    if "\\ud" not in text:
        assert json.loads(wanted) == json.loads(text)


def test_one_line_is_fit_for_a_row() -> None:
    for char in map(chr, [*range(0x20, 0x100), 0x2027, 0x2028, 0x2029, 0xFFFD, 0x1F600]):
        line = one_line(json.dumps([char], ensure_ascii=False))
        assert line == f"[{json_string(char)}]".replace('"\x7f"', '"\x7f"')


def test_strict_json() -> None:
    for text in ("[1,]", "{'a':1}", "Infinity", "-Infinity", "\ufeff1", '"\t"', "01", "[1]x"):
        with pytest.raises(JsonError):
            parse_json(text)
