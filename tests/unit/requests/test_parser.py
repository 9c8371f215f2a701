"""Lines to rows: identity, parameters, prompts, envelopes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deepinfer_cli.constraints.types import ConstraintSpec
from deepinfer_cli.requests.fields import KNOWN_FIELDS, suggestion
from deepinfer_cli.requests.ids import effective_seed, replace_lone_surrogates
from deepinfer_cli.requests.parser import RowParser
from deepinfer_cli.requests.scan import IdTable
from deepinfer_cli.requests.types import (
    FailedRow,
    ParsedRow,
    RawLine,
    RequestRow,
    RowRules,
    SamplingValues,
    SkippedRow,
)


class Parsing:
    """A parser with its warnings at hand."""

    def __init__(self, **rules: Any) -> None:
        self.said: list[str] = []
        keys: set[str] = set()

        def warn(key: str, text: str) -> None:
            if key not in keys:
                self.said.append(text)
            keys.add(key)

        self.parser = RowParser(RowRules(**rules), IdTable(), IdTable(), warn)
        self.index = 0

    def __call__(self, row: dict[str, Any] | bytes | str) -> ParsedRow:
        data = json.dumps(row).encode() if isinstance(row, dict) else row
        data = data.encode() if isinstance(data, str) else data
        raw = RawLine(self.index, self.index + 1, 0, data, len(data))
        self.index += 1
        return self.parser.parse(raw)

    def ok(self, row: dict[str, Any] | bytes | str) -> RequestRow:
        parsed = self(row)
        assert isinstance(parsed, RequestRow), parsed
        return parsed

    def error(self, row: dict[str, Any] | bytes | str) -> tuple[str, str | None]:
        parsed = self(row)
        assert isinstance(parsed, FailedRow), parsed
        return parsed.error.code, parsed.error.field


def params(**fields: Any) -> SamplingValues:
    return Parsing().ok({"prompt": "x", **fields}).params


def refused(**fields: Any) -> tuple[str, str | None]:
    return Parsing().error({"prompt": "x", **fields})


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"temperature": 0}, "temperature", 0.0),
        ({"top_k": -1}, "top_k", 0),
        ({"top_k": 1e2}, "top_k", 100),
        ({"max_tokens": 3.0}, "max_tokens", 3),
        ({"max_completion_tokens": 9}, "max_tokens", 9),
        ({"max_tokens": 9, "max_completion_tokens": 9}, "max_tokens", 9),
        ({"max_tokens": 2**31}, "max_tokens", 2**31),
        ({"stop": "."}, "stop", (".",)),
        ({"stop": ["a", "b", "a"]}, "stop", ("a", "b")),
        ({"stop": None}, "stop", ()),
        ({"logprobs": True}, "top_logprobs", 0),
        ({"logprobs": True, "top_logprobs": 4}, "top_logprobs", 4),
        ({"logprobs": 4}, "top_logprobs", 4),
        ({"top_logprobs": 4}, "top_logprobs", 4),
        ({"logprobs": False}, "top_logprobs", -1),
        ({"prompt_logprobs": True}, "prompt_logprobs", 0),
        ({"logit_bias": {"12": -1, "3": 2.5}}, "logit_bias", ((3, 2.5), (12, -1.0))),
        ({"max_tokens": 0, "prompt_logprobs": 0}, "max_tokens", 0),
    ],
)
def test_parameters(fields: dict[str, Any], name: str, value: Any) -> None:
    assert getattr(params(**fields), name) == value


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": "0.5"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"min_p": 2}, "min_p"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"n": 0}, "n"),
        ({"n": 10**30}, "n"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1, "seq_seed": 2}, "seq_seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", 13]}, "stop[1]"),
        ({"stop": ["x"] * 257}, "stop"),
        ({"stop_token_ids": [1, -2]}, "stop_token_ids[1]"),
        ({"stop_token_ids": 5}, "stop_token_ids"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 4, "max_completion_tokens": 9}, "max_completion_tokens"),
        ({"max_tokens": 2, "min_tokens": 3}, "min_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": 3, "top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"logit_bias": {"1": 1, "01": 1}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"stream": True}, "stream"),
        ({"echo": True}, "echo"),
        ({"best_of": 2}, "best_of"),
        ({"chat": 1}, "chat"),
        ({"system": "no place for it"}, "system"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ],
)
def test_bad_parameters(fields: dict[str, Any], field: str) -> None:
    assert refused(**fields) == ("bad_param", field)


def test_rows_win_over_the_run_and_null_means_absent() -> None:
    parse = Parsing(defaults=SamplingValues(temperature=0.5, max_tokens=7))
    assert parse.ok({"prompt": "x"}).params == SamplingValues(temperature=0.5, max_tokens=7)
    assert parse.ok({"prompt": "x", "temperature": 0}).params.temperature == 0.0
    assert parse.ok({"prompt": "x", "max_tokens": None}).params.max_tokens == 7


def test_equal_parameters_share_one_object() -> None:
    parse = Parsing()
    rows = [parse.ok({"prompt": str(i), "max_tokens": 3, "seed": i}) for i in range(3)]
    assert rows[0].params is rows[1].params is rows[2].params
    assert [row.seed for row in rows] == [0, 1, 2]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("max_token", "max_tokens"),
        ("Max_Tokens", "max_tokens"),
        ("maxTokens", "max_tokens"),
        ("max-tokens", "max_tokens"),
        ("max_new_tokens", "max_tokens"),
        ("temprature", "temperature"),
        ("temperture", "temperature"),
        ("top-p", "top_p"),
        ("topk", "top_k"),
        ("sotp", "stop"),
        ("Stop", "stop"),
        ("N", "n"),
        ("sed", "seed"),
        ("messsages", "messages"),
        ("promt", "prompt"),
        ("prompts", "prompt"),
        ("logit_biases", "logit_bias"),
        ("presense_penalty", "presence_penalty"),
        ("response_fromat", "response_format"),
        ("system_prompt", "system"),
    ],
)
def test_near_misses(key: str, meant: str) -> None:
    assert suggestion(key) == meant
    assert refused(**{key: 1})[0] == "unknown_field"


@pytest.mark.parametrize(
    "key",
    [
        *("split", "gold", "row_no", "m", "k", "x", "text", "topic", "step", "need", "shop"),
        *("label", "source", "answer", "question", "level", "score", "url2", "top_1", "state"),
    ],
)
def test_peoples_own_columns_are_no_typos(key: str) -> None:
    assert suggestion(key) is None


def test_known_names_are_not_typos_of_each_other() -> None:
    parse = Parsing()
    for name in KNOWN_FIELDS:
        parsed = parse({"prompt": "x", name: None} if name != "prompt" else {"prompt": "x"})
        assert not isinstance(parsed, FailedRow) or parsed.error.code != "unknown_field", name


def test_unknown_keys_warn_once_per_key() -> None:
    parse = Parsing()
    for _ in range(3):
        parse.ok({"prompt": "x", "split": 1, "gold": 2})
    assert len(parse.said) == 2


def test_strict_refuses_unknown_keys() -> None:
    assert Parsing(strict=True).error({"prompt": "x", "split": 1}) == ("unknown_field", "split")


# ---- identity ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", ['"a"', '"\\u00e9\\/\\n"', '""', "0", "-5", "98765432109876543210", '"é"'])
def test_ids_are_echoed_byte_for_byte(raw: str) -> None:
    row = Parsing().ok(f'{{"id": {raw}, "prompt": "x"}}')
    assert row.identity.id_json == raw
    assert not row.identity.id_generated


@pytest.mark.parametrize("raw", ["1.0", "1e3", "true", "[1]", "{}"])
def test_ids_of_other_types(raw: str) -> None:
    assert Parsing().error(f'{{"id": {raw}, "prompt": "x"}}') == ("bad_param", "id")


def test_duplicates_are_found_by_meaning() -> None:
    parse = Parsing()
    parse.ok('{"id": "a\\u0062", "prompt": "x"}')
    assert parse.error('{"custom_id": "ab", "prompt": "y"}') == ("duplicate_id", "id")
    parse.ok('{"id": 0, "prompt": "x"}')
    assert parse.error('{"id": -0, "prompt": "x"}') == ("duplicate_id", "id")
    parse.ok('{"id": "0", "prompt": "x"}')


def test_on_duplicate() -> None:
    keep = Parsing(on_duplicate="keep")
    first, second = keep.ok({"id": 1, "prompt": "x"}), keep.ok({"id": 1, "prompt": "x"})
    assert (first.seed, first.identity.request_hash) == (second.seed, second.identity.request_hash)
    skip = Parsing(on_duplicate="first")
    skip.ok({"id": 1, "prompt": "x"})
    assert skip({"id": 1, "prompt": "y"}) == SkippedRow("duplicate")


def test_a_bad_row_still_holds_its_id() -> None:
    parse = Parsing()
    assert parse.error({"id": 1, "prompt": None})[0] == "missing_prompt"
    assert parse.error({"id": 1, "prompt": "x"})[0] == "duplicate_id"


def test_seed_is_a_function_of_run_seed_and_id() -> None:
    seeds = {effective_seed(run_seed, key) for run_seed in (0, 1) for key in (b"i7", b"s7", b"sa")}
    assert len(seeds) == 6 and all(0 <= seed < 2**63 for seed in seeds)
    assert Parsing(run_seed=1).ok({"id": "a", "prompt": "x"}).seed == effective_seed(1, b"sa")


def test_request_hash_follows_row_and_settings() -> None:
    def hash_of(row: str, **rules: Any) -> str:
        return Parsing(**rules).ok(row).identity.request_hash

    base = hash_of('{"id": 1, "prompt": "x"}')
    assert len(base) == 16 and int(base, 16) >= 0
    assert hash_of('  {"id": 1, "prompt": "x"}\r') == base
    assert hash_of('{"id": 1, "prompt": "y"}') != base
    assert hash_of('{"id": 1, "prompt": "x"}', settings_digest=b"other") != base


def test_metadata_is_spliced() -> None:
    row = Parsing().ok(
        '{"prompt": "x", "metadata": {"n": 12345678901234567890123, "e":\r1e2, "s": "p\u2028q"}}'
    )
    assert row.identity.metadata_json == '{"n": 12345678901234567890123, "e": 1e2, "s": "p\\u2028q"}'


def test_lone_surrogates() -> None:
    line = rb'{"a": "\ud83d\udd25 \ud83d \udd25\ud83d \\ud800 \\\ud800"}'
    fixed = replace_lone_surrogates(line)
    assert fixed == rb'{"a": "\ud83d\udd25 \ufffd \ufffd\ufffd \\ud800 \\\ufffd"}'
    row = Parsing().ok(rb'{"id": "\ud800", "prompt": "\ud83d"}')
    assert row.prompt.text == "\ufffd" and row.identity.id_json == '"\\ufffd"'
    assert row.warnings == ("replaced_surrogate",)


def test_an_oversized_row() -> None:
    parsed = Parsing().parser.parse(RawLine(0, 1, 0, None, 1 << 30))
    assert isinstance(parsed, FailedRow) and parsed.error.code == "row_too_large"


def test_scanner_errors() -> None:
    parse = Parsing()
    assert parse.error(b"[1]")[0] == "not_an_object"
    assert parse.error(b'{"a": "\xff"}')[0] == "bad_encoding"
    assert parse.error(b'{"prompt": "x", "prompt": "y"}')[0] == "bad_json"
    assert parse.error(b'{"a":' * 200 + b"1" + b"}" * 200)[0] == "too_deep"
    assert parse.error("\ufeff{}")[0] == "bad_json"


# ---- prompts -----------------------------------------------------------------------------------------------


def user(text: str = "hi") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_messages() -> None:
    row = Parsing(system="be brief").ok({"messages": user()})
    assert row.prompt.messages == user() and row.prompt.system == "be brief"
    own = [{"role": "system", "content": "mine"}, *user()]
    assert Parsing(system="be brief").ok({"messages": own}).prompt.system is None
    assert Parsing(system="be brief").ok({"messages": user(), "system": "row"}).prompt.system == "row"
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    messages = Parsing().ok({"messages": parts}).prompt.messages
    assert messages is not None and messages[0]["content"] == "ab"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"messages": []}, ("missing_prompt", "messages")),
        ({"messages": [{"role": "user", "content": 3}]}, ("bad_param", "messages[0].content")),
        ({"messages": [3]}, ("bad_param", "messages[0]")),
        ({"messages": [*user(), {"role": "assistant", "content": "so"}]}, ("bad_param", "messages[1]")),
        ({"messages": user(), "continue_final_message": True}, ("bad_param", "messages[0]")),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            ("bad_param", "messages[0].content[0]"),
        ),
        ({"prompt": [1, 2, "x"]}, ("bad_param", "prompt[2]")),
        ({"prompt_token_ids": []}, ("missing_prompt", "prompt_token_ids")),
        ({"prompt_token_ids": [True]}, ("bad_param", "prompt_token_ids[0]")),
        ({"prompt": "x", "prompt_token_ids": [1]}, ("bad_param", "prompt_token_ids")),
        ({}, ("missing_prompt", "prompt")),
    ],
)
def test_prompt_shapes(fields: dict[str, Any], wanted: tuple[str, str]) -> None:
    assert Parsing().error({"id": 1, **fields}) == wanted


def test_continuing_a_message_must_be_asked_for() -> None:
    messages = [*user(), {"role": "assistant", "content": "So"}]
    row = Parsing().ok({"messages": messages, "continue_final_message": True})
    assert row.prompt.continue_final_message
    assert Parsing(continue_final_message=True).ok({"messages": messages}).prompt.continue_final_message


def test_tools() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    row = Parsing().ok({"messages": user(), "tools": tools, "tool_choice": "auto"})
    assert row.prompt.tools == tools
    unknown = {"type": "function", "function": {"name": "other"}}
    assert Parsing().error({"messages": user(), "tools": tools, "tool_choice": unknown}) == (
        "bad_param",
        "tool_choice",
    )
    forced = Parsing().error({"messages": user(), "tools": tools, "tool_choice": "required"})
    assert forced == ("unsupported_schema", "tool_choice")


def test_a_row_carries_its_constraint_over_the_run_s() -> None:
    run = ConstraintSpec("choice", '["a"]')
    assert Parsing(constraint=run).ok({"prompt": "x"}).constraint is run
    assert Parsing(constraint=run).ok({"prompt": "x", "constraint": None}).constraint is run
    assert Parsing(constraint=run).ok({"prompt": "x", "response_format": {"type": "text"}}).constraint is None
    own = Parsing(constraint=run).ok({"prompt": "x", "constraint": {"regex": "a"}}).constraint
    assert own == ConstraintSpec("regex", "a", field="constraint.regex")
    inside = Parsing().ok(envelope(messages=user(), response_format={"type": "json_object"})).constraint
    assert inside == ConstraintSpec("json_object", "", field="body.response_format.type")
    assert Parsing().error(envelope(messages=user(), guided_json={})) == ("unknown_field", "body.guided_json")


# ---- envelopes and foreign columns -------------------------------------------------------------------------


def envelope(url: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
    return {"custom_id": "c", "method": "POST", "url": url, "body": body}


def test_envelopes() -> None:
    row = Parsing().ok(envelope(messages=user(), max_tokens=3, metadata={"a": 1}))
    assert row.identity.id_json == '"c"' and row.params.max_tokens == 3
    assert row.identity.metadata_json == '{"a": 1}'
    assert Parsing().ok(envelope("/v1/completions", prompt=[1, 2])).prompt.token_ids == [1, 2]
    assert Parsing().error(envelope(messages=user(), max_token=3)) == ("unknown_field", "body.max_token")
    assert Parsing().error(envelope(messages=user(), temperature=-1)) == ("bad_param", "body.temperature")
    assert Parsing().error(envelope(prompt="x")) == ("bad_param", "body.prompt")
    assert Parsing().error({**envelope(messages=user()), "max_tokens": 3}) == ("bad_param", "max_tokens")
    assert Parsing().error({**envelope(), "body": 3}) == ("bad_param", "body")


def test_what_counts_as_an_envelope() -> None:
    page = {"url": "https://example.org/", "body": "text of a page", "title": "t"}
    row = Parsing(template_text="{{ title }}: {{ body }}").ok(page)
    assert row.prompt.text == "t: text of a page" and row.identity.envelope_url is None
    assert Parsing(prompt_field="body").ok(page).prompt.text == "text of a page"
    assert Parsing().error(page) == ("bad_param", "url")
    assert Parsing().error({"custom_id": "c", "body": {"prompt": "x"}}) == ("bad_param", "url")
    assert Parsing().ok({"prompt": "x", "body": {"a": 1}}).prompt.text == "x"
    assert Parsing(prompt_field="q").ok(envelope(messages=user())).identity.envelope_url is not None


def test_model_mismatch() -> None:
    parse = Parsing(model_name="small")
    for name in ("big", "big", "small"):
        parse.ok({"prompt": "x", "model": name})
    assert len(parse.said) == 1 and "big" in parse.said[0]
    strict = Parsing(model_name="small", strict=True)
    assert strict.error({"prompt": "x", "model": "big"}) == ("bad_param", "model")


def test_prompt_field() -> None:
    parse = Parsing(prompt_field="question")
    assert parse.ok({"question": "why?", "answer": "42"}).prompt.text == "why?"
    assert parse.ok({"question": user("why?")}).prompt.messages == user("why?")
    assert parse.error({"id": 5, "answer": "42"}) == ("missing_prompt", "question")
    assert parse.error({"id": 6, "question": 3}) == ("bad_param", "question")


def test_template_over_columns() -> None:
    parse = Parsing(template_text="{{ q }}? {{ row['other col'] }} {{ list | join(',') }}")
    row = parse.ok({"q": "why", "other col": 1, "list": ["a", "b"]})
    assert row.prompt.text == "why? 1 a,b"
    assert parse.error({"q": "why"}) == ("bad_param", None)
    assert not parse.said
    attack = Parsing(template_text="{{ ''.__class__.__mro__ }}{% for i in range(10**9) %}x{% endfor %}")
    assert attack.error({"q": 1})[0] == "bad_param"
    with pytest.raises(ValueError, match="line 1"):
        Parsing(template_text="{% if %}")


def test_shards_see_the_same_duplicates() -> None:
    rows = [{"id": i % 4, "prompt": "x"} for i in range(8)] + [{"prompt": "same"}] * 4
    whole = Parsing()
    wanted = [whole(row) for row in rows]
    for shard in range(3):
        parse = Parsing(shard=(shard, 3))
        for i, row in enumerate(rows):
            assert parse(row) == (wanted[i] if i % 3 == shard else SkippedRow("shard"))


def test_passthrough() -> None:
    row = '{"prompt": "x", "a": 1e2, "b": null, "max_tokens": 3}'
    assert Parsing(passthrough=("all",)).ok(row).identity.columns_json == '{"a":1e2,"b":null}'
    assert (
        Parsing(passthrough=("b", "zz", "prompt")).ok(row).identity.columns_json == '{"b":null,"prompt":"x"}'
    )
    assert Parsing().ok(row).identity.columns_json is None
    assert Parsing(passthrough=("all",)).error({"prompt": "x", "max_token": 3})[0] == "unknown_field"


def test_id_prefix() -> None:
    parse = Parsing(id_prefix_files=("a.jsonl",))
    assert parse.ok({"id": 7, "prompt": "x"}).identity.id_json == '"a.jsonl:7"'
    assert parse.ok({"id": 'q"', "prompt": "x"}).identity.id_json == '"a.jsonl:q\\""'


@pytest.mark.parametrize(
    ("first", "word"),
    [
        (b'[{"prompt": "x"},', "array"),
        (b"{", "several lines"),
        (b"Why is the sky blue?", "plain text"),
        ('{"prompt": "x"}'.encode("utf-16"), "UTF-16"),
    ],
)
def test_other_formats_are_recognised_once(first: bytes, word: str) -> None:
    parse = Parsing()
    parse.error(first)
    parse.error(first)
    assert len(parse.said) == 1 and word in parse.said[0]


def test_one_bad_row_is_no_other_format() -> None:
    parse = Parsing()
    parse.error(b'{"prompt": ')
    parse.ok({"prompt": "x"})
    parse.error(b"[1]")
    assert not parse.said


def test_many_different_unknown_keys_do_not_flood() -> None:
    parse = Parsing()
    for i in range(200):
        parse.ok({"prompt": "x", f"column number {i}": 1})
    assert len(parse.said) == 51 and "further" in parse.said[-1]
