"""Loads the tokenizer of a Hugging Face style folder: tokenizer.json and the small files around it."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepinfer_cli.errors import in_short
from deepinfer_cli.tokenizer.byte_level import spelled_bytes
from deepinfer_cli.tokenizer.checks import check_tokenizer_json
from deepinfer_cli.tokenizer.gguf_pieces import piece_bytes
from deepinfer_cli.tokenizer.library import LibraryTokenizer, TokenizerError, library_panics

MAX_TOKENIZER_BYTES = 1 << 27  # the largest published ones have 35 MB
_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_JSON_BYTES = 1 << 24  # of the small files around it
MAX_TOKEN_ID = 1 << 21  # the table has an entry for every id below the largest


def folder_tokenizer(folder: Path) -> LibraryTokenizer:
    """Raises TokenizerError when tokenizer.json is missing, broken or of a kind without a byte table."""
    path = folder / "tokenizer.json"
    config = read_json_object(folder / "tokenizer_config.json")
    data = read_whole(path, MAX_TOKENIZER_BYTES)
    if data is None:
        raise TokenizerError(f"{folder} has no tokenizer.json")
    from tokenizers import Tokenizer

    try:
        check_tokenizer_json(json.loads(data))
        with library_panics():
            backend = Tokenizer.from_str(data.decode("utf-8"))
        if getattr(backend.model, "dropout", None):
            backend.model.dropout = None  # for training: it makes the ids of a text a matter of chance
    except RecursionError:
        raise TokenizerError(f"{path} cannot be read: it nests too deeply") from None
    except Exception as error:  # the library raises plain Exception
        raise TokenizerError(f"{path} cannot be read: {in_short(str(error))}") from error
    backend.no_truncation()
    backend.no_padding()
    table, special = _byte_table(backend, path)
    bos = _bos_id(backend, config, special)
    adds_bos = _adds_bos(backend, config, bos)
    digest = hashlib.blake2b(data, digest_size=8)
    digest.update(f"{bos if adds_bos else None}".encode())
    return LibraryTokenizer(
        backend,
        token_bytes=table,
        special=special,
        bos_token_id=bos,
        adds_bos=adds_bos,
        fingerprint=digest.hexdigest(),
        kind="tokenizer.json",
    )


def folder_eos_token_ids(folder: Path, tokenizer: LibraryTokenizer) -> list[int]:
    """generation_config.json's list, config.json's, and tokenizer_config.json's eos_token, together."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        value = read_json_object(folder / name).get("eos_token_id")
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, int) and not isinstance(item, bool) and 0 <= item < tokenizer.vocab_size:
                found.append(item)
    spelling = spelling_of(read_json_object(folder / "tokenizer_config.json").get("eos_token"))
    if spelling is not None:
        token_id = tokenizer.backend.token_to_id(spelling)
        if token_id is not None:
            found.append(token_id)
    return list(dict.fromkeys([*found, *tokenizer.end_token_ids()]))


def read_whole(path: Path, max_bytes: int) -> bytes | None:
    """The bytes of a regular file of bounded size; None when there is none. A link to a device or a pipe in
    a folder of models would block, or never end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise TokenizerError(f"{path} is no regular file")
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > max_bytes:
        raise TokenizerError(f"{path} is larger than {max_bytes:,} bytes")
    return data


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in an optional file; empty when the file is absent."""
    data = read_whole(path, MAX_JSON_BYTES)
    if data is None:
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} cannot be read: {in_short(str(error))}") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} is not a JSON object")
    return value


def spelling_of(token: Any) -> str | None:
    """Special tokens are given as a string, or as an object with the string in `content`."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) and token and not _SURROGATE.search(token) else None


def _byte_table(backend: Any, path: Path) -> tuple[list[bytes], list[bool]]:
    vocab: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    added = backend.get_added_tokens_decoder()
    size = max((*vocab.values(), *added), default=-1) + 1
    if size == 0:
        raise TokenizerError(f"{path} has an empty vocabulary")
    if size > MAX_TOKEN_ID:
        raise TokenizerError(f"{path} has the token id {size - 1}; ids up to {MAX_TOKEN_ID - 1} are allowed")
    table, special = [b""] * size, [False] * size
    spell = _speller(backend, path)
    for token, token_id in vocab.items():
        if token_id not in added:
            table[token_id] = spell(token)
    for token_id, token in added.items():
        table[token_id] = token.content.encode("utf-8", "replace")
        special[token_id] = token.special
    return table, special


def _speller(backend: Any, path: Path) -> Any:
    """How this vocabulary spells bytes, told from its decoder."""
    decoder = json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else {}
    steps = [step.get("type") for step in decoder.get("decoders", [decoder])]
    if steps == ["ByteLevel"]:
        return spelled_bytes
    if "ByteFallback" in steps:
        return piece_bytes
    raise TokenizerError(
        f"{path} decodes with {' + '.join(map(str, steps)) or 'nothing'}; supported: ByteLevel, and pieces "
        "with ByteFallback"
    )


def _bos_id(backend: Any, config: Mapping[str, Any], special: list[bool]) -> int | None:
    spelling = spelling_of(config.get("bos_token"))
    if spelling is not None:
        token_id: int | None = backend.token_to_id(spelling)
        return token_id
    plain = backend.encode("a", add_special_tokens=False).ids
    full = backend.encode("a", add_special_tokens=True).ids
    first = full[0] if len(full) > len(plain) and full[1 : 1 + len(plain)] == plain else None
    return first if first is not None and special[first] else None


def _adds_bos(backend: Any, config: Mapping[str, Any], bos: int | None) -> bool:
    """tokenizer_config.json decides; without a word there, what the post-processor does."""
    stated = config.get("add_bos_token")
    if isinstance(stated, bool):
        return stated
    full = backend.encode("a", add_special_tokens=True).ids
    return bos is not None and full[:1] == [bos]
