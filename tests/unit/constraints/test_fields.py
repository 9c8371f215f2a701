"""Spellings of constraints in rows and settings: each means one thing, near misses are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.config.layers import FlagUse, print_config, resolve
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.yaml_source import parse_settings
from deepinfer_cli.constraints.fields import Reader, SpellingError, run_constraint, run_options
from deepinfer_cli.constraints.types import ConstraintSpec
from deepinfer_cli.errors import ConfigError
from deepinfer_cli.requests.parser import _members, decode_value
from deepinfer_cli.results.manifest import row_settings_digest

READER = Reader(decode_value, _members)
SCHEMA = '{"type" : "object", "required":["b","a"]}'


def asked(line: str, reader: Reader = READER) -> tuple[bool, ConstraintSpec | None]:
    return reader.row(_members(line.encode()))


SPELLINGS = [
    ('{"constraint": {"json_schema": %s}}', "json_schema", SCHEMA, "constraint.json_schema"),
    ('{"constraint": {"json_schema": true}}', "json_schema", "true", "constraint.json_schema"),
    ('{"constraint": {"regex": "a\\\\d", "choice": null}}', "regex", "a\\d", "constraint.regex"),
    ('{"constraint": {"choice": ["y" , "n"]}}', "choice", '["y","n"]', "constraint.choice"),
    ('{"constraint": {"grammar": "root ::= x"}}', "grammar", "root ::= x", "constraint.grammar"),
    ('{"constraint": {"json_object": true}}', "json_object", "", "constraint.json_object"),
    (
        '{"response_format": {"json_schema": {"strict": true, "schema": %s}, "type": "json_schema"}}',
        "json_schema",
        SCHEMA,
        "response_format.json_schema.schema",
    ),
    ('{"response_format": {"type": "json_object"}}', "json_object", "", "response_format.type"),
    ('{"structured_outputs": {"json": %s}}', "json_schema", SCHEMA, "structured_outputs.json"),
    (
        '{"structured_outputs": {"json": "{\\"a\\": 1}"}}',
        "json_schema",
        '{"a": 1}',
        "structured_outputs.json",
    ),
    ('{"structured_outputs": {"json_object": true}}', "json_object", "", "structured_outputs.json_object"),
    (
        '{"structured_outputs": {"json_object": false, "regex": "a"}}',
        "regex",
        "a",
        "structured_outputs.regex",
    ),
    ('{"structured_outputs": {"choice": ["a"], "disable_fallback": true}}', "choice", '["a"]', None),
    ('{"structured_outputs": {"grammar": "g"}}', "grammar", "g", "structured_outputs.grammar"),
    ('{"so_args": {"json_schema": %s}}', "json_schema", SCHEMA, "so_args.json_schema"),
    ('{"so_args": {"ebnf": "g"}}', "grammar", "g", "so_args.ebnf"),
    ('{"so_args": {"regex": "a"}, "response_format": {"type": "text"}}', "regex", "a", "so_args.regex"),
]


@pytest.mark.parametrize(("line", "kind", "source", "field"), SPELLINGS)
def test_spellings(line: str, kind: str, source: str, field: str | None) -> None:
    is_said, spec = asked(line.replace("%s", SCHEMA))
    assert is_said and spec is not None
    assert (spec.kind, spec.source) == (kind, source)
    assert field is None or spec.field == field


def test_what_asks_for_nothing() -> None:
    assert asked("{}") == (False, None)
    assert asked('{"constraint": null, "guided_json": null}') == (False, None)
    assert asked('{"response_format": {"type": "text"}}') == (True, None)


def test_the_syntax_of_a_grammar() -> None:
    reader = Reader(decode_value, _members, "w3c")
    _, spec = asked('{"constraint": {"grammar": "g"}}', reader)
    assert spec is not None and spec.syntax == "w3c"
    _, spec = asked('{"constraint": {"grammar": "g", "grammar_syntax": "iso"}}', reader)
    assert spec is not None and spec.syntax == "iso"


def test_the_key_is_of_the_content_alone() -> None:
    one = ConstraintSpec("grammar", "g", "iso", "a")
    assert one.key == ConstraintSpec("grammar", "g", "iso", "b").key and len(one.key) == 16
    others = (
        ConstraintSpec("grammar", "g"),
        ConstraintSpec("regex", "g", "iso"),
        ConstraintSpec("grammar", "h", "iso"),
    )
    assert len({one.key, *(other.key for other in others)}) == 4


MISTAKES = [
    ('{"guided_json": {}}', "unknown_field", "guided_json", "structured_outputs"),
    ('{"constraint": {"regex": "a"}, "so_args": {"regex": "a"}}', "bad_param", "so_args", "give one of"),
    ('{"constraint": []}', "bad_param", "constraint", "object"),
    ('{"constraint": {}}', "bad_param", "constraint", "exactly one"),
    ('{"constraint": {"choice": ["y"], "regex": "y"}}', "bad_param", "constraint", "exactly one"),
    ('{"constraint": {"jsonschema": {}}}', "bad_param", "constraint.jsonschema", "did you mean json_schema?"),
    ('{"constraint": {"json_schema": "{}"}}', "bad_param", "constraint.json_schema", "object, true or false"),
    ('{"constraint": {"regex": 3}}', "bad_param", "constraint.regex", "string"),
    ('{"constraint": {"regex": ""}}', "bad_param", "constraint.regex", "not empty"),
    ('{"constraint": {"choice": []}}', "bad_param", "constraint.choice", "at least one"),
    ('{"constraint": {"choice": ["a", 1]}}', "bad_param", "constraint.choice[1]", "string"),
    (
        '{"constraint": {"regex": "a", "grammar_syntax": "iso"}}',
        "bad_param",
        "constraint.grammar_syntax",
        "grammar",
    ),
    (
        '{"constraint": {"grammar": "a", "grammar_syntax": "bnf"}}',
        "bad_param",
        "constraint.grammar_syntax",
        "gbnf",
    ),
    ('{"constraint": {"json_object": false}}', "bad_param", "constraint.json_object", "true"),
    ('{"response_format": {"type": "json"}}', "bad_param", "response_format.type", "json_object"),
    ('{"response_format": {"type": "json_schema"}}', "bad_param", "response_format.json_schema", "object"),
    (
        '{"response_format": {"type": "json_object", "schema": {}}}',
        "bad_param",
        "response_format.schema",
        "json_schema",
    ),
    (
        '{"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}}',
        "bad_param",
        "response_format.json_schema.schema",
        "object, true or false",
    ),
    (
        '{"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}}',
        "bad_param",
        "response_format.json_schema.strict",
        "true or false",
    ),
    (
        '{"response_format": {"type": "text", "json_schema": {}}}',
        "bad_param",
        "response_format.json_schema",
        "type",
    ),
    (
        '{"structured_outputs": {"structural_tag": "{}"}}',
        "bad_param",
        "structured_outputs.structural_tag",
        "not supp",
    ),
    ('{"so_args": {"grammar": "g"}}', "bad_param", "so_args.grammar", "ebnf"),
    ('{"so_args": "regex"}', "bad_param", "so_args", "object"),
]


@pytest.mark.parametrize(("line", "code", "field", "words"), MISTAKES)
def test_mistakes(line: str, code: str, field: str, words: str) -> None:
    with pytest.raises(SpellingError) as wrong:
        asked(line)
    assert (wrong.value.code, wrong.value.field) == (code, field)
    assert words in wrong.value.message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"constraint": {"json_schema": {"a": "%s"}}}' % ("x" * (1 << 20)), "1,048,576 bytes"),
        ('{"constraint": {"grammar": "%s"}}' % ("x" * (1 + (1 << 20))), "1,048,576 bytes"),
        ('{"constraint": {"choice": [' + '"a",' * 10_000 + '"b"]}}', "10,000 choices"),
    ],
)
def test_too_much(line: str, words: str) -> None:
    with pytest.raises(SpellingError, match=words) as wrong:
        asked(line)
    assert wrong.value.code == "bad_schema"


# ---- settings ----------------------------------------------------------------------------------------------


def flags(*uses: tuple[str, str], config_file: str | None = None, **environ: str) -> RunConfig:
    found = [FlagUse(key, "--" + key.replace("_", "-"), value) for key, value in uses]
    return resolve(found, config_file=config_file, environ=environ).config


def test_flags(tmp_path: Path) -> None:
    schema = tmp_path / "s.json"
    schema.write_text('\ufeff{"enum": [1]}')
    grammar = tmp_path / "g.gbnf"
    grammar.write_text('root ::= "a"')
    assert run_constraint(RunConfig()) is None
    assert run_constraint(flags(("choice", "a"), ("choice", "b"))) == ConstraintSpec(
        "choice", '["a", "b"]', field="choice"
    )
    assert run_constraint(flags(("regex", "a+"))) == ConstraintSpec("regex", "a+", field="regex")
    found = run_constraint(flags(("grammar", str(grammar)), ("grammar_syntax", "gbnf")))
    assert found == ConstraintSpec("grammar", 'root ::= "a"', "gbnf", "grammar")
    options = run_options(flags(("json_whitespace", "compact"), ("set", "schema_best_effort=true")))
    assert (options.json_whitespace, options.best_effort) == ("compact", True)


def test_a_map_in_a_file_and_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("constraint:\n  choice: [yes, no, 'null']\n")
    assert run_constraint(flags(config_file=str(file))) == ConstraintSpec(
        "choice", '["yes","no","null"]', field="constraint.choice"
    )
    stronger = flags(("regex", "a"), config_file=str(file))
    assert run_constraint(stronger) == ConstraintSpec("regex", "a", field="regex")
    assert "constraint: null" in print_config(stronger)
    by_env = flags(
        config_file=str(file), DEEPINFER_CONSTRAINT="{grammar: 'root ::= \"a\"', grammar_syntax: gbnf}"
    )
    found = run_constraint(by_env)
    assert found is not None and (found.kind, found.syntax) == ("grammar", "gbnf")
    printed = tmp_path / "printed.yaml"
    printed.write_text(print_config(by_env))
    assert run_constraint(flags(config_file=str(printed))) == found


def test_yaml_of_a_schema_keeps_its_order_and_types() -> None:
    schema = "{type: object, properties: {b: {const: 1.5}, a: {enum: [no, true, ~, '1', 1]}}}"
    values = parse_settings(f"constraint: {{json_schema: {schema}}}", "f").values["constraint"]["json_schema"]
    assert json.dumps(values) == (
        '{"type": "object", "properties": {"b": {"const": 1.5}, "a": {"enum": ["no", true, null, "1", 1]}}}'
    )


@pytest.mark.parametrize(
    "uses",
    [
        (("regex", "a"), ("choice", "b")),
        (("set", "constraint={choice: [1]}"),),
        (("set", "constraint={regex: a, choice: [b]}"),),
        (("set", "constraint={jsonschema: {}}"),),
        (("set", "constraint=text"),),
        (("grammar_syntax", "bnf"),),
        (("json_schema", "/nonexistent/schema.json"),),
    ],
)
def test_settings_that_are_refused(uses: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(ConfigError):
        run_constraint(flags(*uses))


def test_a_resumed_run_notices_another_constraint(tmp_path: Path) -> None:
    file = tmp_path / "g"
    digests: list[Any] = [row_settings_digest(RunConfig())]
    for text in ('root ::= "a"', 'root ::= "b"'):
        file.write_text(text)
        digests.append(row_settings_digest(flags(("grammar", str(file)))))
    digests.append(row_settings_digest(flags(("json_whitespace", "compact"))))
    assert len(set(digests)) == 4
    copy = tmp_path / "copy"
    copy.write_text('root ::= "b"')
    assert row_settings_digest(flags(("grammar", str(copy)))) == digests[2]
