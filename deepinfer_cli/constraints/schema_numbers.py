"""Numbers of a schema: kept to what the engine gets exactly right.

It holds bounds as 64-bit floats, forgets that a bound is exclusive where both have the same integer part,
and writes multiples with all their decimals. Bounds are therefore made inclusive, and a multiple with
decimals becomes a choice of one with each number of them.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

from deepinfer_cli.constraints.types import ConstraintError

_EXACT: Final = 2**53  # integers up to here are floats exactly
_MAX_PLACES: Final = 22  # powers of ten up to here are floats exactly
_LEAST_ABOVE_ZERO: Final = Decimal("1e-20")
_DIGITS: Final = 15  # of a decimal number that every reader takes for the same float
_MAX_COEFFICIENT: Final = 2**32 - 1
_MAX_CORE: Final = 10_000
_MAX_UNEVEN: Final = 100_000  # of those that are more than a digit and zeros


def _written(value: int | float) -> Decimal:
    return Decimal(getattr(value, "text", None) or repr(value))


def check_constant(value: Any, pointer: str) -> None:
    """A number that must come out as it is: the engine's reader rounds twice where there are many digits."""
    exact = _written(value).normalize()
    exponent = int(exact.as_tuple().exponent)
    is_kept = abs(exponent) <= _MAX_PLACES and abs(int(exact.scaleb(-exponent))) <= _EXACT
    if not is_kept or Decimal(repr(float(value))) != exact:
        raise ConstraintError("unsupported_schema", f"{value!r} has more digits than are kept", pointer)


def bounds(node: dict[str, Any], pointer: str, *, only_integers: bool) -> dict[str, Any]:
    """The four keywords, as the engine takes them."""
    found: dict[str, Any] = {}
    for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        if key not in node:
            continue
        value = _bound(node[key], f"{pointer}/{key}", is_low="inimum" in key)
        if key.startswith("exclusive") and not only_integers and value == int(value):
            key, value = _inclusive(key, int(value))
        if key in found:  # of two lower bounds the higher counts
            value = max(found[key], value) if key == "minimum" else min(found[key], value)
        found[key] = value
    return found


def _bound(value: int | float, pointer: str, *, is_low: bool) -> int | float:
    if abs(value) <= _EXACT:
        check_constant(value, pointer)
        return int(value) if value == int(value) else float(value)
    if is_low and value < 0:
        return -_EXACT
    if not is_low and value > 0:
        return _EXACT
    raise ConstraintError("unsupported_schema", "bounds beyond 2^53 are not enforced", pointer)


def _inclusive(key: str, value: int) -> tuple[str, float]:
    """The nearest bound that can be written so that nobody rounds it away."""
    places = _DIGITS - len(str(abs(value)))
    least = Decimal(1).scaleb(-max(places, 0)) if value else _LEAST_ABOVE_ZERO
    if key == "exclusiveMinimum":
        return "minimum", float(value + least)
    return "maximum", float(value - least)


def multiples(step: int | float, pointer: str, *, only_integers: bool) -> list[int | float]:
    """Steps such that a number is a multiple of `step` just when it is one of one of them, and has no more
    decimals than that has."""
    exact = _written(step).normalize()
    exponent = max(0, -int(exact.as_tuple().exponent))
    coefficient = int(exact.scaleb(exponent))
    if only_integers:
        coefficient, exponent = math.lcm(coefficient, 10**exponent) // 10**exponent, 0
    found: list[int | float] = []
    for decimals in range(exponent, 0, -1):
        unit = int(10 ** (exponent - decimals))
        found.append(_step(math.lcm(coefficient, unit) // unit, decimals, pointer))
    return list(dict.fromkeys(found)) or [_step(coefficient, 0, pointer)]


def _core(coefficient: int) -> int:
    """Without factors of ten's: as many states as this does the engine make."""
    for factor in (2, 5):
        while coefficient % factor == 0:
            coefficient //= factor
    return coefficient


def _is_enforced(coefficient: int) -> bool:
    """The engine's work has been seen to explode for the rest: 2**22 takes minutes, 3,000,000 nothing."""
    without_tens = coefficient
    while without_tens % 10 == 0:
        without_tens //= 10
    return _core(coefficient) <= _MAX_CORE and (coefficient <= _MAX_UNEVEN or without_tens <= 10)


def _step(coefficient: int, decimals: int, pointer: str) -> int | float:
    """As a JSON number that the engine takes apart again without loss."""
    exact = Decimal(coefficient).scaleb(-decimals)
    value = float(exact)
    scaled, places = value, 0
    while scaled != int(scaled) and places < 20:
        scaled *= 10.0  # as the engine does it
        places += 1
    is_kept = scaled <= _MAX_COEFFICIENT and Decimal(int(scaled)).scaleb(-places) == exact
    if not is_kept or not _is_enforced(coefficient):
        raise ConstraintError("unsupported_schema", "multipleOf with so many digits is not enforced", pointer)
    return int(value) if value == int(value) else value


def check_together(steps: dict[Decimal, str]) -> None:
    """Steps of one schema, by where each stands: the engine multiplies those that meet, in 32 bits."""
    places = max((-int(step.as_tuple().exponent) for step in steps), default=0)
    scaled = sorted((int(step.scaleb(max(0, places))), pointer) for step, pointer in steps.items())
    if len(scaled) < 2:
        return
    together = math.lcm(*(step for step, _ in scaled))
    if scaled[-1][0] * scaled[-2][0] > _MAX_COEFFICIENT or not _is_enforced(together):
        message = "multipleOf of this size is not enforced beside another"
        raise ConstraintError("unsupported_schema", message, scaled[-1][1])
