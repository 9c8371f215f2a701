"""YAML as nodes: places, doubled keys, bounds, and scalars typed by the setting."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_cli.config.json_schema import check_file
from deepinfer_cli.config.yaml_source import MAX_FILE_BYTES, parse_settings, read_settings
from deepinfer_cli.errors import ConfigError


def test_scalars_are_typed_by_their_setting() -> None:
    text = 'min_p: 1e-5\nstop: [no, "off", 5, 1e3]\nlogprobs: yes\nsystem: no\n'
    text += 'model: 010\nseed: "5"\nchat: "yes"\n'
    found = parse_settings(text, "f.yaml")
    assert found.values == {
        "min_p": 0.00001,
        "stop": ["no", "off", "5", "1e3"],
        "logprobs": True,
        "system": "no",
        "model": "010",
        "seed": "5",  # quoted: a string, which the check refuses
        "chat": "yes",
    }
    assert not found.notes


def test_odd_integers_are_decimal_and_noted() -> None:
    found = parse_settings("seed: 0123\nmax_tokens: 1_000\n", "f.yaml")
    assert found.values == {"seed": 123, "max_tokens": 1000}
    assert found.notes == (
        "f.yaml:1:7: seed: 0123 is read as the decimal number 123",
        "f.yaml:2:13: max_tokens: 1_000 is read as the number 1000",
    )


def test_aliases_of_keys_and_null() -> None:
    found = parse_settings("max_completion_tokens: 5\nsystem: ~\nmodel:\n", "f.yaml")
    assert found.values == {"max_tokens": 5, "system": None, "model": None}


def test_anchors_are_expanded_and_scalars_typed_at_each_use() -> None:
    found = parse_settings("seed: &x 5\nsystem: *x\n", "f.yaml")
    assert found.values == {"seed": 5, "system": "5"}


REFUSED = [
    ("temperatur: 2", "f.yaml:1:1: unknown setting 'temperatur'", "did you mean `temperature`?"),
    ("model: a\nmax-token: 2", "f.yaml:2:1: unknown setting 'max-token'", "did you mean `max_tokens`?"),
    ("profile: {}", "f.yaml:1:1: unknown setting 'profile'", "did you mean `profiles`?"),
    ("zzz: 1", "f.yaml:1:1: unknown setting 'zzz'", "docs/reference/config.md lists the settings"),
    ("seed: 1\nn: 2\nseed: 2", "f.yaml:3:1: 'seed' appears twice (first in line 1)", None),
    ("seed: 1\nseq_seed: 2", "f.yaml:2:1: 'seq_seed' and 'seed' are the same setting", None),
    ("<<: {seed: 1}", "f.yaml:1:1: merge keys (<<) are not supported", "write the settings out"),
    ("stop: !foo x", "f.yaml:1:7: the tag !foo is not supported", "leave tags out"),
    (
        "stop: !!python/object/apply:os.system [ls]",
        "f.yaml:1:7: the tag tag:yaml.org,2002:python/object/apply:os.system is not supported",
        "leave tags out",
    ),
    ("? [a]\n: b", "f.yaml:1:3: a key must be plain text", None),
    ("- seed", "f.yaml:1:1: must be a mapping from setting names to values", None),
    ("profiles: 3", "f.yaml:1:11: profiles must be a mapping from names to settings", None),
    ("profiles: {a: 3}", "f.yaml:1:15: must be a mapping from setting names to values", None),
    ("profiles: {a: {}, a: {}}", "f.yaml:1:19: 'a' appears twice (first in line 1)", None),
    ("profiles:\n  a: {sed: 3}", "f.yaml:2:7: unknown setting 'sed'", "did you mean `seed`?"),
    ("seed: 1\n---\nseed: 2", "f.yaml:2:1: not valid YAML: but found another document", None),
    ("stop: [a", "f.yaml:1:9: not valid YAML: expected ',' or ']', but got '<stream end>'", None),
    ("model: *x", "f.yaml:1:8: not valid YAML: found undefined alias 'x'", None),
    ("model: \0", "f.yaml:1: not valid YAML: special characters are not allowed", None),
    ("stop: &a [*a]", "f.yaml:1:7: nested deeper than 32 levels", None),
]


@pytest.mark.parametrize(("text", "message", "hint"), REFUSED, ids=[m for _, m, _ in REFUSED])
def test_refused(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_settings(text, "f.yaml")
    assert (refused.value.message, refused.value.hint) == (message, hint)
    assert refused.value.exit_code == 2


def test_alias_bomb_is_one_sentence() -> None:
    lines = ["stop: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    keys = ["stop_token_ids", "system", "model", "chat", "n", "seed", "top_k"]
    lines += [f"{key}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]" for i, key in enumerate(keys)]
    with pytest.raises(ConfigError, match="more than 50,000 values after aliases are expanded"):
        parse_settings("\n".join(lines), "f.yaml")


@pytest.mark.parametrize("anchor", ["9" * 500_000, '"' + "x" * 500_000 + '"'])
def test_an_alias_bomb_of_few_but_long_values_is_one_sentence(anchor: str) -> None:
    uses = ", ".join(["*a"] * 45_000)
    with pytest.raises(ConfigError, match="more than 2,097,152 characters after aliases are expanded"):
        parse_settings(f"stop: [&a {anchor}, {uses}]", "f.yaml")


LONG = "x" * 900_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"? {LONG}\n: 1", "a key has 900,000 characters, wanted at most 200"),
        (f"model: *{LONG}", "not valid YAML: found undefined alias"),
        (f"model: !{LONG} a", "the tag !x"),
        (f"seed: {'9' * 900_000}", "seed must be an integer"),
        (f"profiles: {{{LONG}: 1}}", "not valid YAML"),
    ],
)
def test_a_complaint_is_short_however_long_the_words_are(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        check_file(parse_settings(text, "f.yaml"))
    assert len(refused.value.message) < 400


@pytest.mark.parametrize("opening", ["[", "{a: ", "? ", "- "])
def test_deep_nesting_is_refused_without_recursing(opening: str) -> None:
    limit = sys.getrecursionlimit()
    with pytest.raises(ConfigError, match="nested deeper than 32 levels"):
        parse_settings("model: " * (opening in "[{a: ") + opening * 20_000, "f.yaml")
    assert sys.getrecursionlimit() == limit


def test_files_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="more than 1,048,576 bytes"):
        read_settings(str(path))


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the config file .*: No such file or directory"):
        read_settings(str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigError, match="Is a directory"):
        read_settings(str(tmp_path))
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"seed: 1\nsystem: \xe9\n")
    with pytest.raises(ConfigError, match=r"latin.yaml:2: not valid UTF-8"):
        read_settings(str(path))


def test_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbfseed: 1\r\nn: 2\r\n")
    assert read_settings(str(path)).values == {"seed": 1, "n": 2}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n"])
def test_empty_files_set_nothing(text: str) -> None:
    assert parse_settings(text, "f.yaml").values == {}


WRONG_VALUES = [
    ("temperature: hot", 'f.yaml:1:1: temperature must be a number in [0, 100], got "hot"'),
    ("n: 1\nseed: -1", "f.yaml:2:1: seed must be an integer in [0, 9223372036854775807], got -1"),
    ('seed: "5"', 'f.yaml:1:1: seed must be an integer in [0, 9223372036854775807], got "5"'),
    ("seed: 12:30:45", 'f.yaml:1:1: seed must be an integer in [0, 9223372036854775807], got "12:30:45"'),
    ("stop: [a, null]", 'f.yaml:1:11: stop must be a string or a list of non-empty strings, got ["a", null]'),
    ("chat: maybe", 'f.yaml:1:1: chat must be true or false, got "maybe"'),
    (
        "profiles:\n  a:\n    n: 0",
        "f.yaml:3:5: n must be an integer in [1, 10000], got 0",
    ),
    (
        "logit_bias:\n  5: x",
        'f.yaml:2:6: logit_bias must be a map from token id to a number in [-100, 100], got {"5": "x"}',
    ),
]


@pytest.mark.parametrize(("text", "message"), WRONG_VALUES, ids=[t for t, _ in WRONG_VALUES])
def test_schema_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_file(parse_settings(text, "f.yaml"))
    assert refused.value.message == message


YAMLISH = st.text(alphabet="abst: -[]{}&*!|>#'\"\n\t?,%@`~0159.e_<", max_size=40)


@given(text=YAMLISH | st.text(max_size=30))
def test_any_text_is_settings_or_one_sentence(text: str) -> None:
    try:
        check_file(parse_settings(text, "f.yaml"))
    except ConfigError as e:
        assert e.message.startswith("f.yaml:")
        assert "\n" not in e.message
