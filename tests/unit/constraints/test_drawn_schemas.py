"""Schemas drawn at random: whatever the engine lets through, `jsonschema` takes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from deepinfer_cli.constraints.types import CheckSpec, ConstraintError
from deepinfer_cli.constraints.validate import check_text
from tests.support.constraint_walk import byte_model, compiled, walk

KEYS = ("a", "b", "ab", "c")
VALUES: tuple[Any, ...] = (None, True, False, 0, 1, 2, "a", "b", "ab", "", [1], [], {"a": 1}, {}, 1.5, "x")
TYPES: tuple[Any, ...] = (
    "object", "array", "string", "integer", "number", "null", "boolean", ["string", "null"],
    ["object", "array"], ["number", "object"],
)  # fmt: skip
PATTERNS = ("^a", "b$", "^[ab]+$", "a|b", "^.{2}$", "^\\w$", "\\d", "^(?=.*a)b?a?$", "^(?:a|$)")
FORMATS = ("date", "time", "ipv4", "ipv6", "hostname", "email", "uri", "uuid", "duration", "date-time")
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
ONE_INSIDE = ("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "not")
NAMES = ({"pattern": "^[ab]+$"}, {"enum": ["a", "b"]}, {"maxLength": 1}, {"const": "a"}, {"minLength": 2})
INSTANCES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 2.5, 0.5, 0.1, 10, 11, -3, 1.5, "", "a", "b", "ab", "ba", "x", "1",
    "2024-02-29", "1.2.3.4",
)  # fmt: skip


class Draw:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def some_keys(self) -> list[str]:
        return self.rng.sample(KEYS, self.rng.randint(1, 3))

    def schema(self, depth: int) -> Any:
        if self.rng.random() < 0.06:
            return self.rng.random() < 0.7
        schema: dict[str, Any] = {"type": self.rng.choice(TYPES)} if self.rng.random() < 0.6 else {}
        for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3))):
            key, value = self.keyword(depth)
            schema[key] = value
        return schema

    def keyword(self, depth: int) -> tuple[str, Any]:
        rng = self.rng
        plain = {
            "const": lambda: rng.choice(VALUES),
            "enum": lambda: rng.choices(VALUES, k=rng.randint(1, 4)),
            "multipleOf": lambda: rng.choice((1, 2, 3, 0.5, 0.25, 0.1, 1.5, 0.01)),
            "pattern": lambda: rng.choice(PATTERNS),
            "format": lambda: rng.choice(FORMATS),
            "required": lambda: rng.sample(KEYS, rng.randint(1, 2)),
            "propertyNames": lambda: rng.choice(NAMES),
            "dependentRequired": lambda: {rng.choice(KEYS): rng.sample(KEYS, rng.randint(0, 2))},
            "contains": lambda: rng.choice((True, False, {})),
            "$ref": lambda: rng.choice(("#/$defs/x", "#/$defs/y", "#")),
            "additionalProperties": lambda: False,
            **{
                key: lambda: rng.choice((0, 1, 2, 3, -1, 2.5, 0.5, 10, -3, 0.1))
                for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
            },
            **{
                key: lambda: rng.randint(0, 3)
                for key in (
                    "minLength",
                    "maxLength",
                    "minItems",
                    "maxItems",
                    "minProperties",
                    "maxProperties",
                )
            },
        }
        nested = {
            "properties": lambda: {
                key: self.schema(depth - 1) for key in rng.sample(KEYS, rng.randint(1, 3))
            },
            "patternProperties": lambda: {rng.choice(("^a", "b", "^c$")): self.schema(depth - 1)},
            "dependentSchemas": lambda: {rng.choice(KEYS): self.schema(depth - 1)},
            **{
                key: lambda: self.schema(depth - 1)
                for key in (
                    "items",
                    "additionalProperties",
                    "unevaluatedProperties",
                    "unevaluatedItems",
                    "not",
                )
            },
            **{
                key: lambda: [self.schema(depth - 1) for _ in range(rng.randint(1, 3))]
                for key in ("prefixItems", "allOf", "anyOf", "oneOf")
            },
            **{key: lambda: self.schema(depth - 1) for key in ("if", "then", "else")},
        }
        makers: dict[str, Any] = {**plain, **nested} if depth > 0 else plain
        key = rng.choice([*makers, *(["properties", "properties"] if depth > 0 else [])])
        return key, makers[key]()

    def document(self) -> str:
        schema = {}
        while not schema:
            drawn = self.schema(3)
            schema = drawn if isinstance(drawn, dict) else {}
        return json.dumps({**schema, "$defs": {"x": self.schema(1), "y": self.schema(2)}})

    def instance(self, depth: int = 2) -> Any:
        kind = self.rng.random()
        if depth == 0 or kind < 0.55:
            return self.rng.choice(INSTANCES)
        if kind < 0.75:
            return [self.instance(depth - 1) for _ in range(self.rng.randint(0, 3))]
        return {key: self.instance(depth - 1) for key in self.rng.sample(KEYS, self.rng.randint(0, 3))}

    def text(self, template: Any) -> str | None:
        """A text made under the mask; None when it grew too long."""
        matcher = template.clone()
        size = byte_model().tokenizer.vocab_size
        made = bytearray()
        for step in range(150):
            mask = matcher.mask(size)
            allowed = [byte for byte in range(256) if mask[byte >> 3] >> (byte & 7) & 1]
            if matcher.is_accepting() and (not allowed or self.rng.random() < 0.5):
                return made.decode()
            assert allowed, made  # there is always a way on
            visible = [byte for byte in allowed if 32 < byte < 127]
            closing = [byte for byte in visible if chr(byte) in '"}],:']
            token = self.rng.choice((closing if step > 60 else ()) or visible or allowed)
            assert matcher.accept(token)
            made.append(token)
        return None


def check(seed: int, num_schemas: int) -> tuple[int, int]:
    """(schemas that compiled, texts that were let through)."""
    draw = Draw(seed)
    num_compiled = num_texts = 0
    for _ in range(num_schemas):
        source = draw.document()
        try:
            template = compiled("json_schema", source)
        except ConstraintError:
            continue
        num_compiled += 1
        texts = [draw.text(template) for _ in range(3)]
        texts += [
            text
            for text in (json.dumps(draw.instance()) for _ in range(6))
            if walk(template, text) == "accepted"
        ]
        for text in filter(None, texts):
            verdict = check_text(CheckSpec("json_schema", source), text)
            # A key that nobody declared may come twice: found after generation, not prevented by it.
            assert verdict.outcome == "valid" or "twice" in verdict.message, (source, text, verdict.message)
            num_texts += 1
    return num_compiled, num_texts


@pytest.mark.parametrize("seed", range(4))
def test_nothing_wrong_is_let_through(seed: int) -> None:
    num_compiled, num_texts = check(seed, 60)
    assert num_compiled > 25 and num_texts > 80


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
def test_nothing_wrong_is_let_through_in_a_longer_run(seed: int) -> None:
    num_compiled, _ = check(seed, 1500)
    assert num_compiled > 600
