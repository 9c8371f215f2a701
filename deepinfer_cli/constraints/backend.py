"""From a checked grammar to what the engine enforces, for one model's vocabulary."""

from __future__ import annotations

import importlib.util
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from deepinfer_cli._native import BpeTokenizer, ConstraintTemplate, Llguidance, NativeError
from deepinfer_cli.constraints.types import ConstraintError, ErrorCode
from deepinfer_cli.errors import ConfigError
from deepinfer_cli.models.types import LoadedModel, Tokenizer
from deepinfer_cli.tokenizer.library import LibraryTokenizer, TokenizerError

if TYPE_CHECKING:
    from deepinfer_cli.constraints.python_road import PythonRoad

# How the engine words what it knows and does not do, or only not so much of.
_NOT_SUPPORTED = ("nimplemented", "not supported", "not implemented", "too ", "limit", "exceed", "panic")


Road = Literal["auto", "native", "python"]
ROAD_VARIABLE = "DEEPINFER_CONSTRAINT_ROAD"


class ConstraintBackend:
    """Thread-safe; the work of setting up is done by the first compile().

    road: how the engine is called. "auto" is native, and Python where the engine's C functions do not fit."""

    def __init__(self, model: LoadedModel, road: str | None = None) -> None:
        self._model = model
        self._road = road or os.environ.get(ROAD_VARIABLE) or "auto"
        if self._road not in get_args(Road):
            hint = f"{ROAD_VARIABLE} is one of {', '.join(get_args(Road))}"
            raise ConfigError(f"{self._road!r} is no way to call the constraint engine", hint)
        self._lock = threading.Lock()
        self._engine: Llguidance | PythonRoad | None = None
        self._why_not_native: str | None = None

    @property
    def why_not_native(self) -> str | None:
        """Why the Python road was taken, once something has been compiled."""
        return self._why_not_native

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
            message = str(error.args[0]).removeprefix("panic: ")
            raise ConstraintError(_code(str(error.args[0])), message) from None

    def _started(self) -> Llguidance | PythonRoad:
        with self._lock:
            if self._engine is None:
                self._engine = self._start()
            return self._engine

    def _start(self) -> Llguidance | PythonRoad:
        tokenizer = self._model.tokenizer
        special = list(tokenizer.special)
        for token in self._model.eos_token_ids:
            special[token] = True
        vocabulary = (
            list(tokenizer.token_bytes),
            special,
            list(self._model.eos_token_ids),
            _speller(tokenizer),
        )
        if not self._model.eos_token_ids:
            raise ConstraintError("unsupported_schema", f"{self._model.name} names no token that ends a text")
        if self._road != "python":
            try:
                return Llguidance(str(_library()), *vocabulary)
            except NativeError as error:
                self._why_not_native = str(error.args[0])
                if self._road == "native" or error.args[1] != "unsupported":
                    message = f"{self._model.name} cannot be constrained: {self._why_not_native}"
                    raise ConstraintError("unsupported_schema", message) from None
        from deepinfer_cli.constraints.python_road import PythonRoad

        return PythonRoad(*vocabulary)


def _code(message: str) -> ErrorCode:
    is_beyond_us = any(words in message for words in _NOT_SUPPORTED)
    return "unsupported_schema" if is_beyond_us else "bad_schema"


def _library() -> Path:
    """The wheel's extension module, without importing it."""
    spec: Any = importlib.util.find_spec("llguidance")
    if spec is None:
        message = "llguidance, the package that enforces constraints, is not installed"
        raise ConstraintError("unsupported_schema", message)
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
