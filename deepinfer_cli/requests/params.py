"""Sampling parameters: type and range of each, and how a row's values meet the run's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deepinfer_cli.config.settings import all_settings
from deepinfer_cli.requests.ids import SEED_MAX
from deepinfer_cli.requests.limits import (
    MAX_LOGIT_BIAS,
    MAX_STOP_BYTES,
    MAX_STOP_BYTES_IN_ALL,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    in_short,
)
from deepinfer_cli.requests.types import FieldError, SamplingValues

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ParamSpec:
    check: Callable[[str, Any], Any]  # (field, value) -> normalised value; raises FieldError
    accepts: str  # for the reference page


def _bad(field: str, wanted: str, value: Any) -> FieldError:
    shown = json.dumps(value[:60] if isinstance(value, str) else value, ensure_ascii=False)
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return FieldError("bad_param", f"{field} must be {wanted}, not {shown}", field)


def integer(low: int, high: int) -> Callable[[str, Any], int]:
    wanted = f"an integer from {low} to {high}"

    def check(field: str, value: Any) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
            value = int(value)  # 3.0, as tables with missing values write it
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _bad(field, wanted, value)
        return value

    return check


def number(low: float, high: float, *, above_low: bool = False) -> Callable[[str, Any], float]:
    wanted = (
        f"a number {'above' if above_low else 'from'} {low:g}{', up to' if above_low else ' to'} {high:g}"
    )

    def check(field: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _bad(field, wanted, value)
        try:
            result = float(value)
        except OverflowError:
            raise _bad(field, wanted, value) from None
        if not math.isfinite(result) or not low <= result <= high or (above_low and result == low):
            raise _bad(field, wanted, value)
        return result

    return check


def boolean(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _bad(field, "true or false", value)
    return value


def _stop(field: str, value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise _bad(field, "a string or a list of strings", value)
    if len(items) > MAX_STOP_STRINGS:
        raise FieldError("bad_param", f"{field} has more than {MAX_STOP_STRINGS} strings", field)
    for i, item in enumerate(items):
        where = field if isinstance(value, str) else f"{field}[{i}]"
        if not isinstance(item, str):
            raise FieldError("bad_param", f"{where} must be a string (token ids go to stop_token_ids)", where)
        if not item:
            raise FieldError("bad_param", f"{where} must not be empty", where)
        if len(item.encode()) > MAX_STOP_BYTES:
            raise FieldError("bad_param", f"{where} is longer than {MAX_STOP_BYTES} bytes", where)
    stops = tuple(dict.fromkeys(items))
    if sum([len(stop.encode()) for stop in stops]) > MAX_STOP_BYTES_IN_ALL:
        raise FieldError("bad_param", f"{field} has more than {MAX_STOP_BYTES_IN_ALL} bytes", field)
    return stops


def _token_ids(field: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise _bad(field, "a list of token ids", value)
    if len(value) > MAX_STOP_TOKEN_IDS:
        raise FieldError("bad_param", f"{field} has more than {MAX_STOP_TOKEN_IDS} ids", field)
    one = integer(0, INT32_MAX)
    return tuple(one(f"{field}[{i}]", item) for i, item in enumerate(value))


def _switch_or_count(high: int) -> Callable[[str, Any], bool | int]:
    count = integer(0, high)
    return lambda field, value: value if isinstance(value, bool) else count(field, value)


def _logit_bias(field: str, value: Any) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, dict):
        raise _bad(field, "an object of token id to number", value)
    if len(value) > MAX_LOGIT_BIAS:
        raise FieldError("bad_param", f"{field} has more than {MAX_LOGIT_BIAS} entries", field)
    amount = number(-100, 100)
    pairs = []
    for key, bias in value.items():
        where = f"{field}.{in_short(key)}"
        if not (key.isascii() and key.isdigit()) or len(key) > 10 or int(key) > INT32_MAX:
            raise FieldError("bad_param", f"{where}: the key must be a token id", where)
        pairs.append((int(key), amount(where, bias)))
    if len({token for token, _ in pairs}) != len(pairs):
        raise FieldError("bad_param", f"{field} names the same token id twice", field)
    return tuple(sorted(pairs))


def _top_k(field: str, value: Any) -> int:
    return max(integer(-1, INT32_MAX)(field, value), 0)  # -1 is how some tools write "off"


def _of_setting(name: str) -> Callable[[str, Any], Any]:
    """Type and range as the settings table declares them: a row may say what a run may say."""
    spec = all_settings()[name]
    if spec.kind == "bool":
        return boolean
    low, high = spec.minimum, spec.maximum
    assert low is not None and high is not None, name
    if spec.kind == "int":
        return integer(int(low), int(high))
    assert spec.kind == "float", name
    return number(low, high, above_low=spec.exclusive_minimum)


def _range(name: str) -> str:
    spec = all_settings()[name]
    kind = {"int": "integer", "float": "number", "bool": "true or false"}[spec.kind]
    if spec.minimum is None:
        return kind
    return f"{kind} in {'(' if spec.exclusive_minimum else '['}{spec.minimum:g}, {spec.maximum}]"


_TOP = int(all_settings()["top_logprobs"].maximum or 0)
_PLAIN = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "include_stop",
    "min_tokens",
    "n",
    "top_logprobs",
    "ignore_eos",
    "return_token_ids",
)

PARAMS: dict[str, ParamSpec] = {
    **{name: ParamSpec(_of_setting(name), _range(name)) for name in _PLAIN},
    "top_k": ParamSpec(_top_k, "integer >= 0; 0 or -1 = off"),
    "max_tokens": ParamSpec(
        _of_setting("max_tokens"),
        "integer >= 0; 0 scores the prompt and needs `prompt_logprobs`; more than fits ends with the context",
    ),
    "max_completion_tokens": ParamSpec(_of_setting("max_tokens"), "alias of `max_tokens`"),
    "stop": ParamSpec(_stop, f"string or list of at most {MAX_STOP_STRINGS} strings, none empty"),
    "stop_token_ids": ParamSpec(_token_ids, f"list of at most {MAX_STOP_TOKEN_IDS} token ids"),
    "logprobs": ParamSpec(_switch_or_count(_TOP), f"true, false, or how many of the best (0 to {_TOP})"),
    "prompt_logprobs": ParamSpec(_switch_or_count(_TOP), f"true, false, or integer from 0 to {_TOP}"),
    "logit_bias": ParamSpec(
        _logit_bias, f"object of at most {MAX_LOGIT_BIAS} token ids to numbers in [-100, 100]"
    ),
}
SEED = ParamSpec(integer(0, SEED_MAX), f"integer from 0 to {SEED_MAX} (2^63 - 1)")

_DIRECT = tuple(n for n in PARAMS if n not in ("max_completion_tokens", "logprobs", "prompt_logprobs"))


def resolve(values: Mapping[str, Any], defaults: SamplingValues, prefix: str = "") -> SamplingValues:
    """`values`: decoded sampling fields of one row; null means "as if absent". `prefix` precedes field names
    in errors ("body." inside an envelope)."""
    checked = {
        name: PARAMS[name].check(prefix + name, value) for name, value in values.items() if value is not None
    }
    chosen = {name: checked[name] for name in _DIRECT if name in checked and name != "top_logprobs"}
    alias = checked.get("max_completion_tokens")
    if alias is not None and chosen.setdefault("max_tokens", alias) != alias:
        field = prefix + "max_completion_tokens"
        raise FieldError("bad_param", f"{prefix}max_tokens and {field} disagree", field)
    if "logprobs" in checked or "top_logprobs" in checked:
        chosen["top_logprobs"] = _top_logprobs(checked.get("logprobs"), checked.get("top_logprobs"), prefix)
    if "prompt_logprobs" in checked:
        value = checked["prompt_logprobs"]
        chosen["prompt_logprobs"] = (0 if value else -1) if isinstance(value, bool) else value
    if not chosen:
        return defaults
    params = replace(defaults, **chosen)
    _check_together(params, prefix)
    return params


def _top_logprobs(logprobs: bool | int | None, top: int | None, prefix: str) -> int:
    """OpenAI's chat spelling (bool + top_logprobs) and completions spelling (int) become one number."""
    if logprobs is None:
        return top if top is not None else -1
    if logprobs is False:
        if top:
            raise FieldError("bad_param", "top_logprobs needs logprobs: true", prefix + "top_logprobs")
        return -1
    if logprobs is True:
        return top or 0
    if top is not None and top != logprobs:
        raise FieldError("bad_param", "logprobs and top_logprobs disagree", prefix + "top_logprobs")
    return logprobs


def _check_together(params: SamplingValues, prefix: str) -> None:
    if params.max_tokens == 0 and params.prompt_logprobs < 0:
        message = "max_tokens: 0 generates nothing; it is for scoring and needs prompt_logprobs"
        raise FieldError("bad_param", message, prefix + "max_tokens")
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise FieldError("bad_param", "min_tokens is larger than max_tokens", prefix + "min_tokens")


def check_vocabulary(params: SamplingValues, vocab_size: int, prefix: str = "") -> None:
    """Token ids in parameters against the loaded model."""
    for token in params.stop_token_ids:
        if token >= vocab_size:
            field = prefix + "stop_token_ids"
            raise FieldError(
                "bad_param", f"{field}: {token} is not a token id (0 to {vocab_size - 1})", field
            )
    for token, _ in params.logit_bias:
        if token >= vocab_size:
            field = f"{prefix}logit_bias.{token}"
            raise FieldError("bad_param", f"{field}: not a token id (0 to {vocab_size - 1})", field)
