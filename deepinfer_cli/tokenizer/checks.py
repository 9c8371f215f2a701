"""What a tokenizer.json may ask for, checked before the library builds it.

The library trusts its files: a normalizer that doubles the text twenty times, or a prefix longer than its
tokens, ends the process or prints a panic. Files of published models need
none of that, so it is refused here, by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from deepinfer_cli.tokenizer.library import TokenizerError

MAX_STEPS: Final = 32  # normalizers, pre-tokenizers or decoders in a row
MAX_GROWTH: Final = 256  # characters that normalizing may make of one
MAX_PREPENDED: Final = 64  # characters
MAX_TOKEN_CHARS: Final = 4096
MAX_ADDED_TOKENS: Final = 100_000
MAX_PATTERN_CHARS: Final = 10_000

MODELS: Final = ("BPE", "Unigram")
# Characters that a normalizer can make of one, by the Unicode tables.
_NORMALIZER_GROWTH: Final[Mapping[str, int]] = {
    "NFC": 3,
    "NFD": 4,
    "NFKC": 18,
    "NFKD": 18,
    "Lowercase": 3,
    "Strip": 1,
    "StripAccents": 1,
    "Nmt": 1,
    "BertNormalizer": 4,
    "ByteLevel": 4,
}
# Back references and calls of groups, in the spellings of the library's engine.
_REFERENCE: Final = re.compile(r"\\(?:[1-9]|k[<'{]|g[<'{])|\(\?(?:[0-9&R+-][0-9)]|\()")


def check_tokenizer_json(state: Any) -> None:
    """Raises TokenizerError naming the part that is refused. `state`: the decoded file."""
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise TokenizerError("there is no object `model` in it")
    _check_model(state["model"])
    _check_normalizers(state.get("normalizer"))
    _check_pre_tokenizers(state.get("pre_tokenizer"))
    list(_steps(state.get("decoder"), "decoders", "decoder"))
    added = state.get("added_tokens") or []
    if not isinstance(added, list) or len(added) > MAX_ADDED_TOKENS:
        raise TokenizerError(f"added_tokens is no list of at most {MAX_ADDED_TOKENS:,} tokens")
    check_token_lengths(
        [t["content"] for t in added if isinstance(t, dict) and "content" in t], "added_tokens"
    )


def check_token_lengths(tokens: Sequence[Any], where: str) -> None:
    try:
        longest = max(map(len, tokens), default=0)
    except TypeError:  # an entry without a length, which others refuse
        longest = max((len(token) for token in tokens if isinstance(token, str)), default=0)
    if longest > MAX_TOKEN_CHARS:
        raise TokenizerError(
            f"{where} has a token of {longest:,} characters, wanted at most {MAX_TOKEN_CHARS}"
        )


def _check_model(model: dict[str, Any]) -> None:
    kind = model.get("type", "BPE")
    if kind not in MODELS:
        raise TokenizerError(f"its model is of type {str(kind)[:40]}; supported: {', '.join(MODELS)}")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise TokenizerError(f"{name} is not supported")
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        check_token_lengths(list(vocab), "vocab")
    elif isinstance(vocab, list):
        check_token_lengths([entry[0] for entry in vocab if isinstance(entry, list) and entry], "vocab")


def _steps(step: Any, key: str, where: str) -> Iterator[dict[str, Any]]:
    """The steps of a pipeline, sequences inside sequences laid out."""
    pending, count = [step], 0
    while pending:
        item = pending.pop(0)
        if item is None:
            continue
        if not isinstance(item, dict):
            raise TokenizerError(f"{where} holds something that is no step")
        if item.get("type") == "Sequence":
            inner = item.get(key)
            if not isinstance(inner, list):
                raise TokenizerError(f"{where} has a Sequence without {key}")
            pending[:0] = inner
        else:
            yield item
        count += 1
        if count + len(pending) > MAX_STEPS:
            raise TokenizerError(f"{where} has more than {MAX_STEPS} steps")


def _check_normalizers(normalizer: Any) -> None:
    growth = 1
    for step in _steps(normalizer, "normalizers", "normalizer"):
        kind = step.get("type")
        if kind == "Replace":
            content = step.get("content")
            check_pattern(step.get("pattern"), "normalizer")
            growth *= max(1, len(content) if isinstance(content, str) else 1)
        elif kind == "Prepend" and len(str(step.get("prepend", ""))) > MAX_PREPENDED:
            raise TokenizerError(f"normalizer prepends more than {MAX_PREPENDED} characters")
        elif isinstance(kind, str) and kind in _NORMALIZER_GROWTH:
            growth *= _NORMALIZER_GROWTH[kind]
        elif kind != "Prepend":
            raise TokenizerError(f"normalizer is of type {str(kind)[:40]}, which is not supported")
        if growth > MAX_GROWTH:
            raise TokenizerError(f"normalizer can make a text more than {MAX_GROWTH} times as long")


def _check_pre_tokenizers(pre_tokenizer: Any) -> None:
    num_byte_levels = 0
    for step in _steps(pre_tokenizer, "pretokenizers", "pre_tokenizer"):
        if step.get("type") == "Split":
            check_pattern(step.get("pattern"), "pre_tokenizer")
        num_byte_levels += step.get("type") == "ByteLevel"  # each spells every byte as a character anew
    if num_byte_levels > 1:
        raise TokenizerError("pre_tokenizer has more than one ByteLevel step")


def check_pattern(pattern: Any, where: str) -> None:
    """{"String": ...} or {"Regex": ...}. The library gives up on a match after ten million steps, so it is
    enough to refuse what makes a single step long."""
    if not isinstance(pattern, dict):
        raise TokenizerError(f"{where} has a step without a pattern")
    text = pattern.get("Regex", pattern.get("String"))
    if not isinstance(text, str) or not 0 < len(text) <= MAX_PATTERN_CHARS:
        raise TokenizerError(f"{where} has a pattern that is not of 1 to {MAX_PATTERN_CHARS:,} characters")
    if "Regex" in pattern and _REFERENCE.search(text):
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise TokenizerError(f"{where} has the pattern {shown!r}, which refers to other parts of itself")
