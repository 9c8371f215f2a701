"""The native twin of a library tokenizer: the same ids without Python, for threads without the GIL."""

from __future__ import annotations

import json
from typing import Any

from deepinfer_cli._native import BpeTokenizer, NativeError
from deepinfer_cli.tokenizer.byte_level import byte_of_character
from deepinfer_cli.tokenizer.library import LibraryTokenizer, TokenizerError
from deepinfer_cli.tokenizer.pre import PRE_TOKENIZERS


def native_twin(tokenizer: LibraryTokenizer, *, normalize: bool = True) -> BpeTokenizer:
    """Raises TokenizerError naming what the native encoder cannot do exactly as the library does.

    Without `normalize` the ids always spell the very bytes of the text."""
    state = json.loads(tokenizer.backend.to_str())
    model = state["model"]
    if model["type"] != "BPE" or model.get("byte_fallback") or model.get("unk_token"):
        raise TokenizerError("the native encoder knows byte-level BPE without an unknown token only")
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix") or model.get("dropout"):
        raise TokenizerError("the native encoder knows no subword prefixes, suffixes or dropout")
    specials, added, late = _added_tokens(state)
    vocab = model["vocab"]
    tokens = [b""] * tokenizer.vocab_size
    alphabet = byte_of_character()
    for token, number in vocab.items():
        if all(character in alphabet for character in token):  # else no word can become it
            tokens[number] = bytes([alphabet[character] for character in token])
    try:
        return BpeTokenizer(
            tokens,
            [(vocab[left], vocab[right]) for left, right in map(_pair, model["merges"])],
            _pre_name(state["pre_tokenizer"]),
            specials,
            added,
            ignore_merges=bool(model.get("ignore_merges")),
            nfc=_is_nfc(state["normalizer"]) and normalize,
            late=late,
        )
    except NativeError as error:
        raise TokenizerError(str(error.args[0])) from error


def _pair(merge: Any) -> list[str]:
    return merge.split(" ") if isinstance(merge, str) else merge


def _pre_name(state: Any) -> str:
    """The native name of a pre-tokeniser, found by comparing with what each name builds."""
    from tokenizers import Tokenizer, models

    wanted = _comparable(state)
    for name in BpeTokenizer.known_pre():
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = PRE_TOKENIZERS[name].build()
        if _comparable(json.loads(backend.to_str())["pre_tokenizer"]) == wanted:
            return name
    raise TokenizerError(f"the native encoder does not know this pre-tokenizer: {json.dumps(state)[:200]}")


def _comparable(state: Any) -> list[dict[str, Any]]:
    """The steps of a pre-tokeniser without settings that do not change ids."""
    steps = state["pretokenizers"] if state and state["type"] == "Sequence" else [state]
    return [
        {key: _spelled(value) for key, value in (step or {}).items() if key != "trim_offsets"}
        for step in steps
    ]


def _spelled(value: Any) -> Any:
    """A pattern with its line ends as escapes: files have them both ways."""
    if not isinstance(value, dict) or not isinstance(value.get("Regex"), str):
        return value
    return {**value, "Regex": value["Regex"].replace("\r", r"\r").replace("\n", r"\n")}


def _is_nfc(state: Any) -> bool:
    if state is None or state == {"type": "Sequence", "normalizers": []}:
        return False
    if state == {"type": "NFC"}:
        return True
    raise TokenizerError(f"the native encoder knows no normalizer but NFC, found {json.dumps(state)[:200]}")


def _added_tokens(state: Any) -> tuple[dict[bytes, int], dict[bytes, int], list[bytes]]:
    """(special, other) added tokens by their bytes, and those that the library looks for after the others,
    because they are in the normalised text."""
    specials: dict[bytes, int] = {}
    added: dict[bytes, int] = {}
    entries = state["added_tokens"]
    for entry in entries:
        if entry["single_word"] or entry["lstrip"] or entry["rstrip"]:
            raise TokenizerError(f"the native encoder takes no surrounding space into {entry['content']!r}")
        (specials if entry["special"] else added)[entry["content"].encode()] = entry["id"]
    late = [entry["content"].encode() for entry in entries if entry["normalized"]]
    if late and _is_nfc(state["normalizer"]):
        raise TokenizerError("the native encoder knows no added tokens that are normalized")
    return specials, added, late
