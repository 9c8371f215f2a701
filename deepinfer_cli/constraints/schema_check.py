"""A finished JSON value against its schema, by `jsonschema`, which shares no code with what made the text.

Numbers are compared by their digits: 0.3 is a multiple of 0.1 here, as it is on paper. References never leave
the schema, except to the published meta-schemas, which are part of the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import referencing

from deepinfer_cli.config import load_jsonschema
from deepinfer_cli.constraints.json_value import ExactFloat, parse_json
from deepinfer_cli.errors import in_short

jsonschema = load_jsonschema.load()


def schema_validator(source: str) -> Any:
    """For the JSON text of a schema. The draft is that of `$schema`, 2020-12 without it."""
    schema = parse_json(source)
    draft = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    if isinstance(schema, dict):
        # A `$ref` to the root would look the class up by this name, and find the one that rounds numbers.
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    return _exact(draft)(schema, registry=referencing.Registry(), format_checker=draft.FORMAT_CHECKER)


def first_violation(validator: Any, value: Any) -> str | None:
    """In words with its place, or None: the value is valid."""
    for error in validator.iter_errors(value):
        return in_short(f"{error.json_path}: {error.message} ({error.validator})")
    return None


_exact_classes: dict[Any, Any] = {}


def _exact(draft: Any) -> Any:
    if draft not in _exact_classes:
        own: dict[str, Any] = {"multipleOf": _multiple_of}
        if "exclusiveMinimum" in draft.VALIDATORS:  # before draft 6 it is a switch of `minimum`
            own |= {
                "minimum": _bound("less than the minimum of", lambda order: order < 0),
                "maximum": _bound("greater than the maximum of", lambda order: order > 0),
                "exclusiveMinimum": _bound("not greater than", lambda order: order <= 0),
                "exclusiveMaximum": _bound("not less than", lambda order: order >= 0),
            }
        own = {key: check for key, check in own.items() if key in draft.VALIDATORS}
        _exact_classes[draft] = jsonschema.validators.extend(draft, own)
    return _exact_classes[draft]


def _decimal(number: int | float) -> Decimal:
    return Decimal(number.text if isinstance(number, ExactFloat) else repr(number))


def _order(a: int | float, b: int | float) -> int:
    """-1, 0 or 1."""
    try:
        x, y = _decimal(a), _decimal(b)
    except InvalidOperation:  # an exponent of twenty digits
        return (a > b) - (a < b)
    return (x > y) - (x < y)


def _bound(words: str, is_wrong: Any) -> Any:
    def check(validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "number") and is_wrong(_order(value, bound)):
            yield jsonschema.ValidationError(f"{value!r} is {words} {bound!r}")

    return check


def _multiple_of(validator: Any, step: Any, value: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "number") and not is_multiple(value, step):
        yield jsonschema.ValidationError(f"{value!r} is not a multiple of {step!r}")


def is_multiple(value: int | float, step: int | float) -> bool:
    digits, exponent = _scaled(value)
    step_digits, step_exponent = _scaled(step)
    shift = exponent - step_exponent
    if not digits or not step_digits:
        return not digits
    if shift >= 0:
        return digits * pow(10, shift, step_digits) % step_digits == 0
    if -shift >= len(str(digits)):
        return False  # the step has more zeros than the value has digits
    return digits % (step_digits * int(10**-shift)) == 0


def _scaled(number: int | float) -> tuple[int, int]:
    """(digits, exponent) with number = digits · 10^exponent, the sign left out."""
    if isinstance(number, int):
        return abs(number), 0
    mantissa, _, exponent = (
        (number.text if isinstance(number, ExactFloat) else repr(number)).lower().partition("e")
    )
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    return int(whole + fraction), int(exponent or 0) - len(fraction)
