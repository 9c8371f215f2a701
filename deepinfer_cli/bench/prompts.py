"""Prompts of exact token length, from texts of ours.

A prompt is a heading that no other prompt of the run has, and then a stretch of prose or code, cut at the
exact number of tokens. The heading comes first because a prefix cache matches from the first token on: two
prompts that differ there share nothing. Same seed, same prompts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files

from deepinfer_cli.models.types import Tokenizer

TEXTS = ("prose.txt", "code.txt")


def corpus() -> str:
    """The texts, without the lines that separate them."""
    folder = files("deepinfer_cli.bench") / "texts"
    lines = [line for name in TEXTS for line in (folder / name).read_text("utf-8").splitlines()]
    return "\n".join(line for line in lines if not line.startswith("=== "))


def corpus_digest() -> str:
    return hashlib.sha256(corpus().encode()).hexdigest()


class PromptMaker:
    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer = tokenizer
        self._seed = seed
        self._text = tokenizer.encode(corpus())
        self._first = (
            [tokenizer.bos_token_id] if tokenizer.adds_bos and tokenizer.bos_token_id is not None else []
        )

    def prompt(self, name: str, num_tokens: int) -> list[int]:
        """`num_tokens` ids; another name gives another prompt from its first tokens on."""
        digest = hashlib.blake2b(f"{self._seed}\0{name}".encode(), digest_size=16).digest()
        head = [*self._first, *self._tokenizer.encode(f"{digest[:8].hex()}\n")]
        start = int.from_bytes(digest[8:], "little") % len(self._text)
        return (head + self._cycle(start, max(0, num_tokens - len(head))))[:num_tokens]

    def _cycle(self, start: int, count: int) -> list[int]:
        text: Sequence[int] = self._text
        found: list[int] = []
        while len(found) < count:
            found += text[start : start + count - len(found)]
            start = 0
        return found
