"""What a row asks to be said, and what the model will read: the seam between requests/ and prompts/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class PromptInput:
    """One row's prompt. Exactly one of text, token_ids and messages is set; shapes are already validated."""

    text: str | None = None
    token_ids: Sequence[int] | None = None
    messages: Sequence[Mapping[str, Any]] | None = None  # role in system/user/assistant/tool
    system: str | None = None  # used unless `messages` has a system message of its own
    chat: bool = False  # send `text` as one user message through the template
    continue_final_message: bool = False  # the last message is the assistant's, to be continued
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    template_kwargs: Mapping[str, Any] | None = None  # extra names for the chat template


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """The exact tokens the engine reads."""

    token_ids: list[int]  # before any truncation; may be empty, the caller refuses that
    text: str | None  # what was tokenised; None when the row gave token ids
    num_bos: int  # leading beginning-of-sequence tokens; 2 deserves a warning
    warnings: tuple[str, ...] = ()  # stable codes, e.g. "double_bos"


@dataclass(frozen=True, slots=True)
class TextLimit:
    """How long a text may be before it is tokenised: that takes many times its size of memory, all of it for
    nothing when the text is far beyond the context."""

    max_chars: int
    may_cut: bool  # truncate_prompt allows it; else the row is refused

    def fitted(self, text: str, field: str) -> tuple[str, bool]:
        """The text, or both ends of it, and whether it was cut. Raises PromptError."""
        if len(text) <= self.max_chars:
            return text, False
        if not self.may_cut:
            what = (
                f"{field} has {len(text):,} characters, more than the {self.max_chars:,} that are tokenised"
            )
            raise PromptError("context_overflow", f"{what} for this context; shorten it", field)
        half = self.max_chars // 2
        return text[:half] + text[-half:], True


NO_TEXT_LIMIT = TextLimit(2**62, False)


class PromptError(Exception):
    """This row's prompt cannot be rendered; its neighbours are not affected."""

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code  # a code of docs/reference/errors.md
        self.message = message
        self.field = field


class Renderer(Protocol):
    """One rendering path for all commands."""

    @property
    def has_template(self) -> bool:
        """Whether the model comes with a chat template (a raw prompt then deserves a hint)."""
        ...

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the template's text and its rendering options."""
        ...

    def render(self, prompt: PromptInput, limit: TextLimit = NO_TEXT_LIMIT) -> RenderedPrompt:
        """Raises PromptError when the row cannot be rendered."""
        ...
