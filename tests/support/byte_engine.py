"""The constraint engine over single bytes: which texts does a grammar let through?"""

from __future__ import annotations

from functools import cache

from llguidance import LLMatcher, LLTokenizer


@cache
def _tokenizer() -> LLTokenizer:
    return LLTokenizer("byte")


class ByteEngine:
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
