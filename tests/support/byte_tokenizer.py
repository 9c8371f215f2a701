"""The byte-level tokenizer of the tiny models: every byte, a few merges, the chat markers."""

from __future__ import annotations

import json
from pathlib import Path

import gguf

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS, EOS = 1, 2
_MERGES = (
    ("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("Ġ", "a"), ("e", "r"), ("o", "n"), ("r", "e"),
    ("Ġ", "s"), ("a", "t"), ("Ġ", "w"), ("o", "u"), ("n", "d"), ("Ġ", "o"), ("Ġ", "c"), ("in", "g"),
    ("e", "n"), ("o", "r"), ("Ġa", "nd"), ("e", "s"), ("Ġ", "f"), ("Ġ", "b"), ("Ġo", "f"), ("Ġ", "p"),
    ("a", "l"), ("i", "s"), ("Ġ", "in"), ("Ġt", "o"), ("a", "n"), ("l", "e"), ("Ã", "©"), ("ð", "Ł"),
)  # fmt: skip
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-in for each byte value 0..255."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    stand_ins = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in stand_ins:
            stand_ins[byte] = chr(256 + len(stand_ins) - len(printable))
    return [stand_ins[byte] for byte in range(256)]


def vocabulary() -> list[str]:
    """Token spellings by id: specials, bytes, merges, then unused entries up to a multiple of 32."""
    tokens = [*SPECIALS, *byte_alphabet(), *("".join(pair) for pair in _MERGES)]
    return tokens + [f"<unused{i}>" for i in range(-len(tokens) % 32)]


VOCAB_SIZE = len(vocabulary())
NUM_USED = len(SPECIALS) + 256 + len(_MERGES)


def add_to_gguf(writer: gguf.GGUFWriter) -> None:
    tokens = vocabulary()
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    kinds[: len(SPECIALS)] = [gguf.TokenType.CONTROL] * len(SPECIALS)
    kinds[NUM_USED:] = [gguf.TokenType.UNUSED] * (len(tokens) - NUM_USED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in _MERGES])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write_files(folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json and generation_config.json."""
    tokens = vocabulary()
    special = [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, text in enumerate(SPECIALS)
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(tokens)},
            "merges": [list(pair) for pair in _MERGES],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIALS[BOS],
        "eos_token": SPECIALS[EOS],
        "add_bos_token": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": BOS, "eos_token_id": EOS}))
