"""Texts to windows of tokens, the same for every model that shares the tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from deepinfer_cli.errors import InputError
from deepinfer_cli.models.types import Tokenizer

DOMAINS: Final = ("prose", "code", "chat", "multilingual")


@dataclass(frozen=True, slots=True)
class Text:
    domain: str  # one of DOMAINS, or the name of the user's file
    text: str


@dataclass(frozen=True, slots=True)
class Window:
    domain: str
    token_ids: tuple[int, ...]  # BOS first where the model wants one
    num_characters: int  # that the scored tokens stand for


def built_in_texts() -> list[Text]:
    folder = files("deepinfer_cli.eval.quality") / "texts"
    return [Text(name, (folder / f"{name}.txt").read_text(encoding="utf-8")) for name in DOMAINS]


def read_texts(paths: Sequence[str]) -> list[Text]:
    """The user's files, each a domain of its own. InputError names what cannot be read."""
    texts = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 at byte {error.start:,}") from None
        if not text.strip():
            raise InputError(f"{path} is empty")
        texts.append(Text(path, text))
    return texts


def cut(texts: Sequence[Text], tokenizer: Tokenizer, num_tokens: int) -> list[Window]:
    """Each text in windows of at most `num_tokens` tokens that do not overlap.

    A window starts with BOS if the model gives raw text one; then every token of the text is scored. Without
    BOS the first token of each window has nothing before it and is not scored.
    """
    bos = [tokenizer.bos_token_id] if tokenizer.adds_bos and tokenizer.bos_token_id is not None else []
    step = num_tokens - len(bos)
    windows = []
    for text in texts:
        ids = tokenizer.encode(text.text)
        for start in range(0, len(ids), step):
            chunk = [*bos, *ids[start : start + step]]
            if len(chunk) > 1:
                windows.append(Window(text.domain, tuple(chunk), len(tokenizer.decode(chunk[1:]))))
    if not windows:
        raise InputError("the texts have too few tokens to score")
    return windows
