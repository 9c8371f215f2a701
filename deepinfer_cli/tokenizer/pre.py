"""Pre-tokenisers by the name that GGUF files give them.

Merges never cross the borders that a pre-tokeniser draws, so a wrong one gives plausible but different
ids. A name that is not in this table is therefore refused, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The word patterns as the models' own tokenizer.json files have them.
LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3_NUMBERS = r"\p{N}{1,3}"
DEEPSEEK3_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK3_WORDS = (
    r'[!"#$%&'
    r"'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One entry: the splits in order, then the byte-level alphabet."""

    splits: tuple[str, ...] = ()  # patterns, each match its own piece
    digits: bool = False  # every digit its own piece
    gpt2_words: bool = False  # the byte-level step also splits words as GPT-2 does
    nfc: bool = False  # text is normalised to NFC first
    ignore_merges: bool = False  # a whole word of the vocabulary is taken as it is
    adds_bos: bool = False  # raw text starts with BOS unless the file says otherwise

    def build(self) -> Any:
        """The `tokenizers` object."""
        from tokenizers import Regex, pre_tokenizers

        steps: list[Any] = [pre_tokenizers.Split(Regex(p), "isolated", invert=False) for p in self.splits]
        if self.digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.gpt2_words))
        return pre_tokenizers.Sequence(steps)


_GPT2 = PreTokenizer(gpt2_words=True)
_SMOLLM = PreTokenizer(digits=True, gpt2_words=True)
_LLAMA3 = PreTokenizer(splits=(LLAMA3_WORDS,), ignore_merges=True, adds_bos=True)
_QWEN2 = PreTokenizer(splits=(QWEN2_WORDS,), nfc=True)
_DEEPSEEK3 = PreTokenizer(splits=(DEEPSEEK3_NUMBERS, DEEPSEEK3_CJK, DEEPSEEK3_WORDS))

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "smollm": _SMOLLM,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-v3": _DEEPSEEK3,
}
