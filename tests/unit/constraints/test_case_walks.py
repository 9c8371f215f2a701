"""The structured cases walked in the tokens of real vocabularies, as a model would write them."""

from __future__ import annotations

import json
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deepinfer_cli import _native
from deepinfer_cli.constraints.backend import ConstraintBackend
from deepinfer_cli.constraints.cache import ConstraintCompiler
from deepinfer_cli.constraints.types import ConstraintError, ConstraintOptions, ConstraintSpec
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.tokenizer.gguf import gguf_tokenizer
from deepinfer_cli.tokenizer.library import LibraryTokenizer
from tests.support.constraint_walk import cases
from tests.support.deepseek_vocabulary import EOS_TOKEN_ID, deepseek_tokenizer
from tests.support.small_model import small_model

_SMALL_EOS = 2


def _spec(case: dict[str, Any]) -> ConstraintSpec:
    if "pattern" in case:
        return ConstraintSpec("regex", case["pattern"])
    if "grammar" in case:
        return ConstraintSpec("grammar", case["grammar"], case["dialect"])
    return ConstraintSpec("json_schema", json.dumps(case["schema"]))


_CASES = [
    case
    for name in ("regex.jsonl", "schema.jsonl", "ebnf.jsonl")
    for case in cases(name)
    if case["policy"] != "refuse"
]


@cache
def _vocabulary(name: str) -> tuple[LibraryTokenizer, ConstraintCompiler]:
    if name == "deepseek":
        tokenizer, eos = deepseek_tokenizer(), EOS_TOKEN_ID
    else:
        tokenizer, eos = gguf_tokenizer(_native.open_tensor_file(str(small_model())).metadata), _SMALL_EOS
    model = SimpleNamespace(tokenizer=tokenizer, eos_token_ids=(eos,), name=name)
    backend = ConstraintBackend(cast(LoadedModel, model))
    return tokenizer, ConstraintCompiler(backend, ConstraintOptions())


def _takes(template: Any, tokenizer: LibraryTokenizer, text: str) -> bool:
    tokens = tokenizer.encode(text, False)
    assert b"".join(tokenizer.token_bytes[token] for token in tokens) == text.encode()
    matcher = template.clone()
    for token in tokens:
        mask = matcher.mask(tokenizer.vocab_size)
        if not mask[token >> 3] >> (token & 7) & 1:
            return False
        assert matcher.accept(token), matcher.error()
    return bool(matcher.is_accepting())


@pytest.mark.parametrize(
    "name",
    [pytest.param("small", marks=pytest.mark.model), pytest.param("deepseek", marks=pytest.mark.oracle)],
)
def test_cases_in_tokens(name: str) -> None:
    tokenizer, compiler = _vocabulary(name)
    wrong: list[tuple[str, str]] = []
    for case in _CASES:
        compiled = compiler.get(_spec(case))
        assert not isinstance(compiled, ConstraintError), (case["id"], compiled)
        for is_right, texts in ((True, case["accept"]), (False, case["reject"])):
            wrong += [
                (case["id"], text)
                for text in texts
                if _takes(compiled.template, tokenizer, text) is not is_right
            ]
    assert not wrong
