"""tokenizer.json and the small files around it, as nobody should write them: refused by name, at once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.tokenizer.checks import MAX_TOKEN_CHARS
from deepinfer_cli.tokenizer.folder import folder_tokenizer, read_json_object
from deepinfer_cli.tokenizer.gguf import gguf_tokenizer
from deepinfer_cli.tokenizer.library import TokenizerError
from deepinfer_cli.tokenizer.pre import PRE_TOKENIZERS
from tests.support.tiny_tokenizer import gguf_metadata, vocabulary, write_folder

Json = dict[str, Any]


def replaces(content: str, pattern: str = "a") -> Json:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def splits(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def in_a_row(key: str, steps: list[Any]) -> Json:
    return {"type": "Sequence", key: steps}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
HOSTILE: dict[str, tuple[Json, str]] = {
    "one step grows": ({"normalizer": replaces("b" * 100_000)}, "256 times as long"),
    "steps double": ({"normalizer": in_a_row("normalizers", [replaces("aa")] * 30)}, "256 times as long"),
    "compositions": ({"normalizer": in_a_row("normalizers", [{"type": "NFKD"}] * 9)}, "256 times as long"),
    "prepends": ({"normalizer": {"type": "Prepend", "prepend": "x" * 100_000}}, "prepends"),
    "empty pattern": ({"normalizer": replaces("x", "")}, "a pattern that is not of 1 to"),
    "unknown step": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA"}}, "Precompiled"),
    "bytes as bytes": ({"pre_tokenizer": in_a_row("pretokenizers", [BYTES] * 20)}, "more than one ByteLevel"),
    "many steps": ({"pre_tokenizer": in_a_row("pretokenizers", [{"type": "Digits"}] * 500)}, "32 steps"),
    "back reference": ({"pre_tokenizer": splits(r"(a+)\1+b")}, "refers to other parts"),
    "recursion": ({"pre_tokenizer": splits(r"(?<n>a\g<n>?b)")}, "refers to other parts"),
    "long pattern": ({"pre_tokenizer": splits("a" * 20_000)}, "a pattern that is not of 1 to"),
    "broken pattern": ({"pre_tokenizer": splits("(")}, "cannot be read"),
    "no model": ({"model": None}, "no object `model`"),
    "another model": ({"model": {"type": "WordLevel", "vocab": {}, "unk_token": "x"}}, "WordLevel"),
    "added tokens": ({"added_tokens": "x"}, "added_tokens is no list"),
}


@pytest.mark.parametrize(("change", "said"), HOSTILE.values(), ids=HOSTILE.keys())
def test_what_no_model_needs_is_refused_before_the_library_builds_it(
    change: Json, said: str, tmp_path: Path
) -> None:
    path = write_folder(tmp_path) / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(TokenizerError, match=said) as refused:
        folder_tokenizer(tmp_path)
    assert str(path) in str(refused.value) and len(str(refused.value)) < 400


@pytest.mark.parametrize("key", ["continuing_subword_prefix", "end_of_word_suffix"])
def test_prefixes_longer_than_tokens_do_not_reach_the_library(key: str, tmp_path: Path, capfd: Any) -> None:
    path = write_folder(tmp_path) / "tokenizer.json"
    state = json.loads(path.read_text())
    state["model"][key] = "x" * 5000
    path.write_text(json.dumps(state))
    with pytest.raises(TokenizerError, match=f"{key} is not supported"):
        folder_tokenizer(tmp_path)
    assert capfd.readouterr().err == ""  # a panic of the library would be printed


def test_dropout_is_for_training(tmp_path: Path) -> None:
    path = write_folder(tmp_path) / "tokenizer.json"
    plain = folder_tokenizer(tmp_path)
    state = json.loads(path.read_text())
    state["model"]["dropout"] = 0.9
    path.write_text(json.dumps(state))
    tokenizer = folder_tokenizer(tmp_path)
    text = "hello world hello world"
    assert {tuple(tokenizer.encode(text)) for _ in range(20)} == {tuple(plain.encode(text))}


def test_the_word_patterns_of_known_models_are_accepted(tmp_path: Path) -> None:
    path = write_folder(tmp_path) / "tokenizer.json"
    state = json.loads(path.read_text())
    for pre in PRE_TOKENIZERS.values():
        state["pre_tokenizer"] = in_a_row("pretokenizers", [*map(splits, pre.splits), BYTES])
        path.write_text(json.dumps(state))
        assert folder_tokenizer(tmp_path).decode(folder_tokenizer(tmp_path).encode("a 1")) == "a 1"


def test_long_tokens_are_refused_in_both_kinds_of_file(tmp_path: Path) -> None:
    long = "q" * (MAX_TOKEN_CHARS + 1)
    with pytest.raises(TokenizerError, match=r"tokenizer\.ggml\.tokens has a token of 4,097 characters"):
        gguf_tokenizer(gguf_metadata(tokens=[*vocabulary()[:-1], long]))
    path = write_folder(tmp_path) / "tokenizer.json"
    state = json.loads(path.read_text())
    state["model"]["vocab"][long] = 400
    path.write_text(json.dumps(state))
    with pytest.raises(TokenizerError, match="vocab has a token of 4,097 characters"):
        folder_tokenizer(tmp_path)


def test_pieces_that_take_too_long_to_split_are_refused() -> None:
    tokens = [f"{i:04}" + "a" * 4000 for i in range(100)]
    changes = {"model": "llama", "scores": [0.0] * 100, "token_type": [1] * 100, "unknown_token_id": 0}
    with pytest.raises(TokenizerError, match="more long pieces than can be split"):
        gguf_tokenizer(gguf_metadata(tokens=tokens, merges=None, eos_token_id=None, **changes))


def test_an_error_of_the_library_is_one_short_line(tmp_path: Path) -> None:
    path = write_folder(tmp_path) / "tokenizer.json"
    state = json.loads(path.read_text())
    state["model"]["fuse_unk"] = "9\n" * 50_000
    path.write_text(json.dumps(state))
    with pytest.raises(TokenizerError, match="cannot be read") as refused:
        folder_tokenizer(tmp_path)
    assert len(str(refused.value)) < 500 and "\n" not in str(refused.value)


def test_links_to_devices_and_pipes_neither_block_nor_fill_memory(tmp_path: Path) -> None:
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    for name, said in (
        ("endless", "no regular file"),
        ("pipe", "no regular file"),
        ("loop", "cannot be read"),
    ):
        with pytest.raises(TokenizerError, match=said):
            read_json_object(tmp_path / f"{name}.json")
    (tmp_path / "dangling.json").symlink_to("nowhere.json")
    assert read_json_object(tmp_path / "dangling.json") == {}
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(1 << 40)  # sparse: it only claims to be large
    with pytest.raises(TokenizerError, match="is larger than"):
        read_json_object(tmp_path / "big.json")
