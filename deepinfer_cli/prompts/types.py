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

    def render(self, prompt: PromptInput) -> RenderedPrompt:
        """Raises PromptError when the row cannot be rendered."""
        ...
