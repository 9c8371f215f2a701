"""Typing and ranges of settings, from JSON values and from unquoted text."""

from __future__ import annotations

import math

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_cli.config.json_schema import setting_schema
from deepinfer_cli.config.settings import all_settings
from deepinfer_cli.config.spec import FailureLimit, Shard
from deepinfer_cli.config.values import check_value, read_number, read_scalar, redact, to_json

TABLE = all_settings()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 0.00001),
        ("1e3", 1000.0),
        ("0123", 123),
        ("010", 10),
        ("1_000", 1000),
        ("0x1F", 31),
        ("0o17", 15),
        ("-7", -7),
        ("+.5", 0.5),
        ("5.", 5.0),
        ("-0.0", -0.0),
    ],
)
def test_numbers_follow_yaml_1_2(text: str, value: float) -> None:
    scalar = read_number(text)
    assert scalar is not None
    assert scalar.value == value
    assert type(scalar.value) is type(value)


@pytest.mark.parametrize(
    "text", ["", "1__0", "_1", "1_", "12:30:45", "1e", "0b1", "inf", "1,000", "९", "9" * 65]
)
def test_what_is_no_number_stays_text(text: str) -> None:
    assert read_number(text) is None


def test_unusual_integers_carry_a_note() -> None:
    assert read_scalar(TABLE["seed"], "0123").note == "0123 is read as the decimal number 123"
    assert read_scalar(TABLE["max_tokens"], "1_000").note == "1_000 is read as the number 1000"
    assert read_scalar(TABLE["seed"], "0").note == ""


@pytest.mark.parametrize("word", ["yes", "on", "True", "OFF", "no"])
def test_truth_words_depend_on_the_setting(word: str) -> None:
    assert isinstance(read_scalar(TABLE["logprobs"], word).value, bool)
    assert read_scalar(TABLE["stop"], word).value == word


@pytest.mark.parametrize(
    ("key", "value", "result"),
    [
        ("temperature", 0, 0.0),
        ("max_tokens", 3.0, 3),
        ("seed", 2**63 - 1, 2**63 - 1),
        ("stop", "x", ("x",)),
        ("stop", [], ()),
        ("stop_token_ids", 5, (5,)),
        ("logit_bias", {"7": -100, "3": 1.5}, ((3, 1.5), (7, -100.0))),
        ("shard", "1/4", Shard(1, 4)),
        ("max_failures", "5%", FailureLimit(None, 0.05)),
        ("max_failures", 10, FailureLimit(10, None)),
        ("kv_cache_bytes", "1.5GiB", 3 << 29),
        ("kv_cache_bytes", "2MB", 2_000_000),
        ("max_tokens", None, None),
    ],
)
def test_accepted(key: str, value: object, result: object) -> None:
    checked = check_value(TABLE[key], value)
    assert checked == result
    assert type(checked) is type(result)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", True),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "0.5"),
        ("temperature", None),
        ("top_p", 0),
        ("top_p", 1.1),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 10**400),
        ("max_tokens", 3.5),
        ("max_tokens", True),
        ("n", 0),
        ("stop", ""),
        ("stop", [""]),
        ("stop", [1]),
        ("stop", ["a\0"]),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"5": 1, "05": 1}),
        ("shard", "4/4"),
        ("shard", "0/0"),
        ("max_failures", "101%"),
        ("max_failures", True),
        ("max_failures", -1),
        ("kv_cache_bytes", "2 XB"),
        ("chat", "yes"),
        ("precision", "fp16"),
        ("output", ""),
    ],
)
def test_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"^must be .*, got "):
        check_value(TABLE[key], value)


def test_complaints_are_short_whatever_the_value() -> None:
    with pytest.raises(ValueError, match="got") as refused:
        check_value(TABLE["temperature"], "x" * 10_000)
    assert len(str(refused.value)) < 150


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "5%", "0/4", "7/3", "1GiB", "input", "file", "fast", "12", "yes", "int8"])
    | st.text(max_size=4).filter(lambda s: "\0" not in s),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["1", "07", "x", "99999999999"]), inner, max_size=2)
    ),
    max_leaves=4,
)
# JSON Schema cannot say these; the check after it does.
BEYOND_SCHEMA = ("shard", "failures", "bias", "bytes")


@given(key=st.sampled_from(sorted(TABLE)), value=JSON_VALUES)
def test_schema_and_check_agree(key: str, value: object) -> None:
    spec = TABLE[key]
    valid = jsonschema.Draft202012Validator(setting_schema(spec)).is_valid(value)
    try:
        checked = check_value(spec, value)
    except ValueError:
        assert not valid or spec.kind in BEYOND_SCHEMA
        return
    assert valid
    assert check_value(spec, to_json(spec, checked)) == checked


def test_defaults_pass_their_own_check() -> None:
    for spec in TABLE.values():
        assert check_value(spec, to_json(spec, spec.default)) == spec.default


def test_secrets_are_redacted() -> None:
    assert redact("https://me:pass@host/x?a=b@c") == "https://***@host/x?a=b@c"
    assert redact("token hf_abcdefghijklmnopqrst!") == "token hf_***!"
    assert redact("a@b hf_short") == "a@b hf_short"


@pytest.mark.parametrize("key", ["system", "stop", "prompt_field", "revision", "passthrough"])
@pytest.mark.parametrize("text", ["\ud800", "\udcff", "a\0b"])
def test_text_that_goes_into_rows_is_unicode(key: str, text: str) -> None:
    with pytest.raises(ValueError, match="must be a") as refused:
        check_value(all_settings()[key], text)
    str(refused.value).encode()  # the complaint itself can be shown


def test_paths_may_hold_the_bytes_that_the_system_gave() -> None:
    for key in ("output", "model"):
        assert check_value(all_settings()[key], "a\udcff") == "a\udcff"
        with pytest.raises(ValueError, match="must be a"):
            check_value(all_settings()[key], "a\ud800")
