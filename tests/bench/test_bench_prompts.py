"""Made prompts: exact lengths, real text, nothing shared at the beginning."""

from __future__ import annotations

import itertools

from deepinfer_cli.bench.prompts import PromptMaker, corpus
from deepinfer_cli.models.fake import FakeTokenizer


def test_lengths_are_exact_and_seeds_repeat() -> None:
    maker, again = PromptMaker(FakeTokenizer(), 3), PromptMaker(FakeTokenizer(), 3)
    for length in (1, 2, 17, 18, 128, 70_000):
        prompt = maker.prompt("0 0 1", length)
        assert len(prompt) == length
        assert prompt == again.prompt("0 0 1", length)
    assert maker.prompt("x", 64) != PromptMaker(FakeTokenizer(), 4).prompt("x", 64)


def test_no_two_prompts_share_a_cache_block() -> None:
    maker = PromptMaker(FakeTokenizer(), 0)
    names = [f"{c} {r} {i}" for c, r, i in itertools.product(range(4), range(5), range(50))]
    assert len({tuple(maker.prompt(name, 16)) for name in names}) == len(names)


def test_the_text_is_ours() -> None:
    text = corpus()
    assert not any(line.startswith("=== ") for line in text.splitlines()) and len(text) > 40_000
    prompt = bytes(t for t in PromptMaker(FakeTokenizer(), 0).prompt("a", 300) if t < 256)
    assert prompt[17:100].decode(errors="ignore")[5:60] in text
