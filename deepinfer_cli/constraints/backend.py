"""From a checked grammar to what the engine enforces, for one model's vocabulary."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from typing import Any

from deepinfer_cli._native import BpeTokenizer, ConstraintTemplate, Llguidance, NativeError
from deepinfer_cli.constraints.types import ConstraintError, ErrorCode
from deepinfer_cli.models.types import LoadedModel, Tokenizer
from deepinfer_cli.tokenizer.library import LibraryTokenizer, TokenizerError

# How the engine words what it knows and does not do, or only not so much of.
_NOT_SUPPORTED = ("nimplemented", "not supported", "not implemented", "too ", "limit", "exceed", "larger")


class ConstraintBackend:
    """Thread-safe; the work of setting up is done by the first compile()."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._engine: Llguidance | None = None

    def compile(self, grammar: str) -> ConstraintTemplate:
        """`grammar`: the engine's JSON list of grammars when it begins with a brace, else its Lark dialect.

        The first mask and one token have been tried when it returns. Raises ConstraintError with the engine's
        reason. Runs without the GIL."""
        try:
            if b"\0" in grammar.encode():
                raise ConstraintError("bad_schema", "the constraint holds a NUL character")
        except UnicodeEncodeError:
            raise ConstraintError("bad_schema", "the constraint holds a lone surrogate") from None
        try:
            return self._started().compile(grammar)
        except NativeError as error:
            message = str(error.args[0])
            raise ConstraintError(_code(message), message) from None

    def _started(self) -> Llguidance:
        with self._lock:
            if self._engine is None:
                self._engine = _start(self._model)
            return self._engine


def _code(message: str) -> ErrorCode:
    is_beyond_us = any(words in message for words in _NOT_SUPPORTED)
    return "unsupported_schema" if is_beyond_us else "bad_schema"


def _start(model: LoadedModel) -> Llguidance:
    tokenizer = model.tokenizer
    special = list(tokenizer.special)
    for token in model.eos_token_ids:
        special[token] = True
    try:
        return Llguidance(
            str(_library()),
            list(tokenizer.token_bytes),
            special,
            list(model.eos_token_ids),
            _speller(tokenizer),
        )
    except NativeError as error:
        message = f"{model.name} cannot be constrained: {error.args[0]}"
        raise ConstraintError("unsupported_schema", message) from None


def _library() -> Path:
    """The wheel's extension module, without importing it."""
    spec: Any = importlib.util.find_spec("llguidance")
    return Path(spec.submodule_search_locations[0]) / "_lib.abi3.so"


def _speller(tokenizer: Tokenizer) -> BpeTokenizer | None:
    """How the model itself spells a text; None where that is only known to a library."""
    if isinstance(tokenizer, LibraryTokenizer):
        from deepinfer_cli.tokenizer.native_bpe import native_twin

        try:
            return native_twin(tokenizer, normalize=False)
        except TokenizerError:
            return None
    table = zip(tokenizer.token_bytes, tokenizer.special, strict=True)
    pieces = [b"" if special else piece for piece, special in table]
    if any(len(piece) > 1 for piece in pieces):
        return None
    return BpeTokenizer(pieces, [], "gpt-2", {})  # every byte is a token
