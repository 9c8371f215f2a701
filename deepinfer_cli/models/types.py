"""What the run needs of a model, whatever its family or file format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from deepinfer_cli.prompts.types import Renderer


class Tokenizer(Protocol):
    """Text to ids and back. Immutable once loaded; safe to call from several threads."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """16 hex digits over vocabulary, merges, special tokens and normalisation."""
        ...

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """[vocab_size] bytes each id adds to the text; special tokens have their spelling here."""
        ...

    @property
    def special(self) -> Sequence[bool]:
        """[vocab_size] whether the id is a special (control) token: it adds no text to an output."""
        ...

    @property
    def bos_token_id(self) -> int | None: ...

    @property
    def adds_bos(self) -> bool:
        """Whether raw text gets one BOS in front."""
        ...

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Ids of `text` alone: nothing is added in front or behind."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids without special tokens; invalid UTF-8 becomes U+FFFD."""
        ...


class LoadedModel(Protocol):
    """Metadata, tokenizer and renderer are ready; weights are only touched by make_executor()."""

    @property
    def name(self) -> str:
        """As the user named it, or from the file's metadata."""
        ...

    @property
    def family(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """Identifies the weights, e.g. "sha256:..." of the file or of the headers and sizes."""
        ...

    @property
    def max_context(self) -> int:
        """The model's own limit, in tokens."""
        ...

    @property
    def eos_token_ids(self) -> Sequence[int]: ...

    @property
    def end_of_thinking(self) -> Sequence[int]:
        """Ids that end the thinking before an answer, where constraints begin; empty: there is none."""
        ...

    @property
    def generation_defaults(self) -> Mapping[str, Any]:
        """Sampling parameters that come with the model (generation_config.json); may be empty."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def renderer(self) -> Renderer: ...

    @property
    def description(self) -> Mapping[str, Any]:
        """For OUT.run.json and people: format, parameters, bytes, source. Plain JSON values."""
        ...

    def make_executor(self, pool: Any) -> Any:
        """A `_native.Executor` on `pool` (a `_native.ThreadPool`). Maps and packs the weights."""
        ...
