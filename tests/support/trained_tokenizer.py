"""A byte-level BPE of 1,000 tokens, trained on the spot on words, numbers and JSON."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

from deepinfer_cli.tokenizer.byte_level import spelled_bytes
from deepinfer_cli.tokenizer.library import LibraryTokenizer

SPECIALS = ("<|end|>", "<|pad|>", "<|im_end|>")
EOS = (0, 2)
_WORDS = (
    "name city street number value total count items price code true false null hello world répété 東京 x"
)


@dataclass(frozen=True)
class Vocabulary:
    """As much of a LoadedModel as constraints need."""

    tokenizer: LibraryTokenizer
    eos_token_ids: tuple[int, ...] = EOS
    name: str = "trained"


@cache
def trained_vocabulary() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_texts(), trainer)
    tokens = [backend.id_to_token(i) for i in range(backend.get_vocab_size())]
    tokenizer = LibraryTokenizer(
        backend,
        token_bytes=[t.encode() if i < len(SPECIALS) else spelled_bytes(t) for i, t in enumerate(tokens)],
        special=[i < len(SPECIALS) for i in range(len(tokens))],
        bos_token_id=None,
        adds_bos=False,
        fingerprint="trained",
        kind="trained",
    )
    return Vocabulary(tokenizer)


def _texts() -> list[str]:
    rng = random.Random(5)
    words = _WORDS.split()
    texts = []
    for _ in range(400):
        a, b, c = rng.sample(words, 3)
        number = rng.randint(-10_000, 10_000)
        texts.append(f'{{"{a}": "{b} {c}", "{c}": {number}, "{b}": [true, null, {number / 8}]}}')
        texts.append(f'[{{"{a}":"{c}"}},{{"{b}":{number}}}]\n{a} {b}, {c}.')
    return texts
