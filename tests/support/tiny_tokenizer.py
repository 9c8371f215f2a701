"""A byte-level tokenizer of 300-odd entries, as GGUF metadata and as tokenizer.json: needs no download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deepinfer_cli.tokenizer.byte_level import character_of_byte

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "\u0120 w", "o r", "\u0120w or", "l d", "\u0120wor ld", "1 2"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def vocabulary() -> list[str]:
    alphabet = [character_of_byte()[byte] for byte in range(256)]
    return [*SPECIALS, *alphabet, *(merge.replace(" ", "") for merge in MERGES)]


def gguf_metadata(**changes: Any) -> dict[str, Any]:
    """`tokenizer.ggml.*` keys; keyword arguments replace them, None removes one."""
    tokens = vocabulary()
    keys: dict[str, Any] = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": tokens,
        "token_type": [3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)),
        "merges": list(MERGES),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "add_bos_token": False,
    }
    keys.update(changes)
    metadata = {f"tokenizer.ggml.{name}": value for name, value in keys.items() if value is not None}
    metadata["tokenizer.chat_template"] = CHAT_TEMPLATE
    return metadata


def write_folder(folder: Path, *, adds_bos: bool = False) -> Path:
    """tokenizer.json, tokenizer_config.json and generation_config.json of the same tokenizer."""
    from deepinfer_cli.tokenizer.gguf import gguf_tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    backend = gguf_tokenizer(gguf_metadata()).backend
    (folder / "tokenizer.json").write_text(backend.to_str(), encoding="utf-8")
    config = {
        "bos_token": {"content": "<|im_start|>", "special": True},
        "eos_token": "<|im_end|>",
        "add_bos_token": adds_bos,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}), encoding="utf-8")
    return folder
