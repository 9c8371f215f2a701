"""The constraint engine over single bytes: which texts does a grammar let through?"""

from __future__ import annotations

import random
from functools import cache

from llguidance import LLMatcher, LLTokenizer

# What the engine says when something is too large for it, not wrong.
_LIMITS = ("items; max is", "too complex", "too many", "too big", "too large", "fuel", "limit")


@cache
def _tokenizer() -> LLTokenizer:
    return LLTokenizer("byte")


class DeadEnd(Exception):
    """The engine has let through the beginning of a text that it then lets nobody end."""


class NothingFits(ValueError):
    """No text fits; the engine says so when it is asked for the first byte."""


class ByteEngine:
    """Raises ValueError where the engine refuses the grammar, then or later."""

    def __init__(self, grammar: str) -> None:
        self._matcher = LLMatcher(_tokenizer(), grammar, log_level=0)
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())

    def takes(self, text: str) -> bool:
        """The whole text, and it may end there."""
        return self.taken(text)[1]

    def taken(self, text: str) -> tuple[int, bool]:
        """(how many of its bytes can begin a text, whether it is one)."""
        data = list(text.encode())
        count = self._matcher.try_consume_tokens(data)
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())
        answer = count, count == len(data) and self._matcher.is_accepting()
        self._matcher.reset()
        return answer

    def walk(self, rng: random.Random, num_bytes: int) -> bytes | None:
        """A text of allowed bytes, drawn one by one; None if it has not come to an end by then."""
        end = _tokenizer().eos_token
        made = bytearray()
        try:
            while len(made) < num_bytes:
                mask = int.from_bytes(self._matcher.compute_bitmask(), "little")
                if self._matcher.is_error():
                    raise self._failure(made)
                can_end = bool(mask >> end & 1)
                allowed = [token for token in range(256) if mask >> token & 1]
                if can_end and (not allowed or rng.random() < 0.2):
                    return bytes(made)
                if not allowed:
                    raise DeadEnd(f"nothing may follow {bytes(made)!r}")
                letters = [token for token in allowed if 32 <= token < 127]
                token = rng.choice(letters if letters and rng.random() < 0.8 else allowed)
                if not self._matcher.consume_token(token):
                    raise self._failure(made)
                made.append(token)
            return bytes(made) if self._matcher.is_accepting() else None
        finally:
            self._matcher.reset()

    def _failure(self, made: bytes) -> Exception:
        said = self._matcher.get_error()
        if any(word in said for word in _LIMITS):
            return ValueError(said)
        if not made:
            return NothingFits(said)
        return DeadEnd(f"after {bytes(made)!r}: {said[:300]}")
