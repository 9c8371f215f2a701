"""JSON answers: one document, checked by its schema, compared by value."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final

from deepinfer_cli.eval.scoring.types import Answer, Gold, Scored, missing

_FENCE: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL | re.IGNORECASE)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _refuse_doubled(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def parse_strict(text: str) -> Any:
    """The JSON value; ValueError for anything else, doubled keys and NaN included."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_doubled)


def equal_json(a: Any, b: Any) -> bool:
    """Equality of JSON values: 1 is 1.0, but true is not 1; order counts in lists only."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal_json(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal_json(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def _document(text: str) -> tuple[str, int] | None:
    """(text, start) of the answer's document: the last fenced block, or all of the answer."""
    blocks = list(_FENCE.finditer(text))
    if blocks:
        return blocks[-1][1], blocks[-1].start(1)
    stripped = text.strip()
    return (stripped, text.index(stripped)) if stripped else None


@lru_cache(maxsize=64)
def _validator(schema_text: str) -> Any:
    from deepinfer_cli.config.load_jsonschema import load

    schema = json.loads(schema_text)
    kind = load().validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


def schema_error(value: Any, schema: Any) -> str | None:
    """The first way in which `value` breaks `schema`, or None."""
    error = next(_validator(json.dumps(schema, sort_keys=True)).iter_errors(value), None)
    return None if error is None else f"{error.json_path}: {error.message}"


def score_json(answer: Answer, gold: Gold) -> Scored:
    """Right when one JSON document obeys the schema and equals the gold, as far as there are any."""
    found = _document(answer.text)
    if found is None:
        return missing(answer, "nothing but reasoning or white space")
    text, start = found
    span = (start, start + len(text))
    try:
        value = parse_strict(text)
    except (ValueError, RecursionError) as error:
        if answer.was_cut:
            return missing(answer, "cut off inside the document")
        return Scored("wrong", text, span, f"not JSON: {error}")
    extracted = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if gold.schema is not None and (broken := schema_error(value, gold.schema)) is not None:
        return Scored("wrong", extracted, span, f"breaks the schema at {broken}")
    if gold.answer is not None:
        wanted = parse_strict(gold.answer) if isinstance(gold.answer, str) else gold.answer
        if not equal_json(value, wanted):
            return Scored("wrong", extracted, span)
    return Scored("correct", extracted, span)
