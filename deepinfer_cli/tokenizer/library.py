"""The tokenizer of a loaded model: the `tokenizers` library plus the byte table that the engine needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deepinfer_cli.tokenizer.byte_level import spelled_bytes

# Control tokens that end a turn. Files often name one end token only while the model uses
# another, and GGUF and safetensors of one model name different ones.
END_SPELLINGS = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)


class TokenizerError(ValueError):
    """A tokenizer that cannot be used; the message is one sentence."""


@contextmanager
def library_panics() -> Iterator[None]:
    """A Rust panic (say, of a pattern that backtracks without end) arrives as a BaseException of a type
    that cannot be imported; here it becomes an error like any other."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"the tokenizer gave up on this text: {error}") from None


class LibraryTokenizer:
    """Implements deepinfer_cli.models.types.Tokenizer. Immutable; safe to call from several threads."""

    def __init__(
        self,
        backend: Any,  # tokenizers.Tokenizer, without truncation, padding or post-processing in use
        *,
        token_bytes: Sequence[bytes],
        special: Sequence[bool],
        bos_token_id: int | None,
        adds_bos: bool,
        fingerprint: str,
        kind: str,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._backend = backend
        self._plain_backend: Any = None  # treats special spellings as text; made on first use
        self._lock = threading.Lock()
        self.token_bytes = list(token_bytes)
        self.special = list(special)
        self.bos_token_id = bos_token_id
        self.adds_bos = adds_bos and bos_token_id is not None
        self.fingerprint = fingerprint
        self.kind = kind  # "gpt2/smollm", "tokenizer.json": for people
        self.warnings = warnings
        self._id_of_special = {
            token_bytes[i].decode("utf-8", "replace"): i for i in range(len(special)) if special[i]
        }

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes)

    def pad_to(self, num_rows: int) -> None:
        """Gives ids that only the model has, up to `num_rows`, an empty spelling: it may well choose them."""
        missing = num_rows - len(self.token_bytes)
        self.token_bytes += [b""] * missing
        self.special += [True] * missing

    @property
    def backend(self) -> Any:
        """The underlying `tokenizers.Tokenizer`, for tests and the native twin."""
        return self._backend

    def id_of_special(self, spelling: str) -> int | None:
        return self._id_of_special.get(spelling)

    def end_token_ids(self) -> list[int]:
        """Special tokens whose spelling is known to end a turn."""
        return [i for text, i in self._id_of_special.items() if text in END_SPELLINGS]

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        backend = self._backend if parse_special else self._without_specials()
        try:
            with library_panics():
                ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        except (TokenizerError, UnicodeEncodeError, TypeError):
            raise
        except Exception as error:  # the library raises plain Exception
            raise TokenizerError(f"the tokenizer cannot encode this text: {error}") from None
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        table, special = self.token_bytes, self.special
        kept = (table[i] for i in token_ids if 0 <= i < len(table) and not special[i])
        return b"".join(kept).decode("utf-8", "replace")

    def _without_specials(self) -> Any:
        with self._lock:
            if self._plain_backend is None:
                twin = type(self._backend).from_str(self._backend.to_str())
                twin.encode_special_tokens = True
                self._plain_backend = twin
            return self._plain_backend


def byte_level_table(tokens: Sequence[str], literal: Sequence[int]) -> list[bytes]:
    """[len(tokens)] bytes of each id: byte-level spelling, or plain UTF-8 for ids in `literal`."""
    # Most entries are ASCII but for U+0120, which spells the space in front of a word.
    table = [
        usual.encode() if (usual := token.replace("\u0120", " ")).isascii() else spelled_bytes(token)
        for token in tokens
    ]
    for i in literal:
        table[i] = tokens[i].encode("utf-8", "replace")
    return table
