"""Constraints over the trained vocabulary, and an engine whose model has more ids than its tokenizer."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from deepinfer_cli import _native
from tests.support.trained_tokenizer import trained_vocabulary

VOCABULARY = trained_vocabulary()
SIZE = VOCABULARY.tokenizer.vocab_size
PADDED_SIZE = SIZE + 45  # what the model computes logits for
KEYS = ("name", "city", "street", "number", "value", "total", "items", "x")
COMPACT = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}


def of_schema(schema: dict[str, Any]) -> str:
    return json.dumps({"grammars": [{"json_schema": {**schema, "x-guidance": COMPACT}}]})


def random_schema(seed: int, depth: int = 2) -> dict[str, Any]:
    """Keys, enums and constants have forced parts, strings and numbers free ones."""
    rng = random.Random(seed)
    kind = rng.choice(("object", "object", "array", "string", "integer", "enum", "const"))
    if kind == "object" and depth > 0:
        keys = rng.sample(KEYS, rng.randint(1, 3))
        properties = {key: random_schema(rng.randrange(1 << 30), depth - 1) for key in keys}
        required = [key for key in keys if rng.random() < 0.7]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
    if kind == "array" and depth > 0:
        items = random_schema(rng.randrange(1 << 30), depth - 1)
        return {"type": "array", "items": items, "minItems": rng.randint(0, 2), "maxItems": 3}
    if kind == "enum":
        return {"enum": rng.sample([*KEYS, "hello world", 7, None, True], 3)}
    if kind == "const":
        return {"const": {"name": "hello world", "total": [1, 2, rng.randint(0, 9)]}}
    if kind == "string":
        return {"type": "string", "maxLength": rng.randint(1, 12)}
    return {"type": "integer", "minimum": 0, "maximum": 10 ** rng.randint(1, 6)}


class ConstrainedEngine:
    """Noise for logits, so every text is what the constraint makes of it. Use as a context manager."""

    def __init__(self, *, num_threads: int = 2, **config: Any) -> None:
        tokenizer, eos = VOCABULARY.tokenizer, list(VOCABULARY.eos_token_ids)
        self._engine = _native.Engine(
            _native.FakeExecutor(PADDED_SIZE, 4096, eos_token_ids=eos, logit_scale=2.0),
            _native.ThreadPool(num_threads),
            _native.TokenTable(list(tokenizer.token_bytes), list(tokenizer.special)),
            num_blocks=[2048],
            eos_token_ids=eos,
            max_waiting=1000,
            debug_checks=True,
            **config,
        )

    def __enter__(self) -> ConstrainedEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self._engine.stop()

    def submit(self, request: _native.Request) -> None:
        assert self._engine.try_submit(request)

    def run(self, requests: Sequence[_native.Request]) -> list[Any]:
        """Completions in the order of the requests, whose ids count from 0."""
        for request in requests:
            self.submit(request)
        done: dict[int, Any] = {}
        while len(done) < len(requests):
            done |= {completion.id: completion for completion in self._engine.poll(1000, 5.0)}
        return [done[i] for i in range(len(requests))]

    @property
    def num_masks_spared(self) -> int:
        return int(self._engine.stats()["num_masks_spared"])

    @property
    def num_forced(self) -> int:
        return int(self._engine.stats()["num_forced_tokens"])


def shown(completion: Any) -> list[Any]:
    """Everything that a row may show of its samples."""
    return [
        (
            sample.tokens,
            sample.text,
            sample.finish_reason,
            sample.stop_string,
            sample.stop_token,
            sample.constraint_state,
            [(scored.token, scored.logprob, scored.rank, scored.top) for scored in sample.logprobs],
        )
        for sample in completion.samples
    ]
