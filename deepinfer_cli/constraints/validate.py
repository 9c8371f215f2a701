"""A finished text against the constraint it was made under, by other code than the engine's.

Patterns can backtrack without end and schemas can be slow, so runs do this in processes of their own
(constraints/pool.py), with a limit on each row.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from deepinfer_cli.constraints.json_value import JsonError, one_line, parse_json
from deepinfer_cli.constraints.pattern_scan import for_python
from deepinfer_cli.constraints.types import CheckSpec
from deepinfer_cli.errors import in_short

# unchecked: the check itself failed, so that nothing is known of the text
Outcome = Literal["valid", "invalid", "timeout", "unchecked"]


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Outcome
    message: str = ""  # the first violation, or why there is no answer
    parsed: str | None = None  # of JSON constraints and valid texts: the value, as one line of JSON


_VALID = Verdict("valid")
_KEPT_CHECKS = 256  # compiled constraints that a worker remembers

Check = Callable[[str], Verdict]


def check_text(check: CheckSpec, text: str) -> Verdict:
    """Never raises; takes as long as it takes."""
    try:
        return _compiled(check)(text)
    except TimeoutError as error:  # a grammar's check counts its steps, too
        return Verdict("timeout", f"the check took {error}")
    except Exception as error:
        return Verdict("unchecked", in_short(f"{type(error).__name__}: {error}"))


@lru_cache(_KEPT_CHECKS)
def _compiled(check: CheckSpec) -> Check:
    match check.kind:
        case "json_schema":
            return _schema_check(check.source)
        case "json_object":
            return _json_object
        case "regex":
            return _regex_check(check.source)
        case "choice":
            return _choice_check(check.source)
        case "grammar":
            return _grammar_check(check)
    raise ValueError(f"no check for {check.kind}")


def _invalid(message: str) -> Verdict:
    return Verdict("invalid", in_short(message))


def _json_check(text: str, violation: Callable[[Any], str | None]) -> Verdict:
    try:
        value = parse_json(text)
    except JsonError as error:
        return _invalid(str(error))
    found = violation(value)
    return Verdict("valid", parsed=one_line(text)) if found is None else _invalid(found)


def _schema_check(source: str) -> Check:
    from deepinfer_cli.constraints.schema_check import first_violation, schema_validator

    validator = schema_validator(source)
    return lambda text: _json_check(text, lambda value: first_violation(validator, value))


def _json_object(text: str) -> Verdict:
    return _json_check(text, lambda value: None if isinstance(value, dict) else "it is not an object")


def _regex_check(pattern: str) -> Check:
    matches = re.compile(for_python(pattern)).fullmatch
    return lambda text: _VALID if matches(text) else _invalid("the whole text does not match the pattern")


def _choice_check(source: str) -> Check:
    choices = frozenset(json.loads(source))
    return lambda text: _VALID if text in choices else _invalid("the text is none of the choices")


def _grammar_check(check: CheckSpec) -> Check:
    recognise = importlib.import_module("deepinfer_cli.constraints.ebnf").recognise

    def run(text: str) -> Verdict:
        if recognise(check.source, check.syntax, text):
            return _VALID
        return _invalid("the grammar does not derive the text")

    return run
