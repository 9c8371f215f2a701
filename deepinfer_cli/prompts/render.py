"""The one rendering path of all commands: PromptInput in, token ids out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepinfer_cli.prompts.template import ChatTemplate
from deepinfer_cli.prompts.types import (
    NO_TEXT_LIMIT,
    PromptError,
    PromptInput,
    RenderedPrompt,
    TextLimit,
)
from deepinfer_cli.tokenizer.library import TokenizerError

if TYPE_CHECKING:  # a runtime import would close a circle: models.types imports prompts.types
    from deepinfer_cli.models.types import Tokenizer


class ChatRenderer:
    """Implements deepinfer_cli.prompts.types.Renderer for models with a Jinja template, or none."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._vocab_size = vocab_size  # of the model: its rows may outnumber the tokenizer's entries

    @property
    def has_template(self) -> bool:
        return self._template is not None

    @property
    def fingerprint(self) -> str:
        if self._template is None:
            return hashlib.blake2b(b"no template", digest_size=8).hexdigest()
        return self._template.fingerprint

    def render(self, prompt: PromptInput, limit: TextLimit = NO_TEXT_LIMIT) -> RenderedPrompt:
        if prompt.token_ids is not None:
            return self._given_ids(prompt.token_ids)
        is_chat = prompt.messages is not None or prompt.chat
        field = "messages" if is_chat else "prompt"
        text, was_cut = limit.fitted(self._chat(prompt) if is_chat else prompt.text or "", field)
        ids = self._encode(text, field)
        if not is_chat:
            self._add_bos(ids)
        num_bos = self._leading_bos(ids)
        warnings = ("double_bos",) if num_bos > 1 else ()
        return RenderedPrompt(ids, text, num_bos, (*warnings, "truncated_prompt") if was_cut else warnings)

    def _given_ids(self, token_ids: Sequence[int]) -> RenderedPrompt:
        for i, token_id in enumerate(token_ids):
            if not 0 <= token_id < self._vocab_size:
                field = f"prompt_token_ids[{i}]"
                what = f"{field} is {token_id}; the vocabulary has the ids 0 to {self._vocab_size - 1}"
                raise PromptError("bad_param", what, field)
        ids = list(token_ids)
        return RenderedPrompt(ids, None, self._leading_bos(ids))

    def _add_bos(self, ids: list[int]) -> None:
        """Raw text gets one BOS where the model wants one, also when the text already spells it."""
        bos = self._tokenizer.bos_token_id
        if self._tokenizer.adds_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)

    def _chat(self, prompt: PromptInput) -> str:
        if self._template is None:
            field = "messages" if prompt.messages is not None else "chat"
            what = "this model has no chat template; give one with --chat-template, or send `prompt`"
            raise PromptError("bad_param", what, field)
        tools = None if prompt.tool_choice == "none" else prompt.tools
        if tools and not self._template.supports_tools:
            what = "the chat template of this model has no place for tools"
            raise PromptError("bad_param", what, "tools")
        return self._template.render(
            self._messages(prompt),
            tools=tools,
            continue_final_message=prompt.continue_final_message,
            template_kwargs=prompt.template_kwargs,
        )

    @staticmethod
    def _messages(prompt: PromptInput) -> list[Mapping[str, Any]]:
        """One system message at most: the conversation's own wins over the row's and the run's."""
        if prompt.messages is not None:
            messages = list(prompt.messages)
        else:
            messages = [{"role": "user", "content": prompt.text or ""}]
        if not messages:
            raise PromptError("missing_prompt", "messages is empty", "messages")
        has_system = any(message.get("role") == "system" for message in messages)
        if prompt.system is not None and not has_system:
            messages.insert(0, {"role": "system", "content": prompt.system})
        return messages

    def _encode(self, text: str, field: str) -> list[int]:
        try:
            return self._tokenizer.encode(text, parse_special=True)
        except (UnicodeEncodeError, TypeError) as error:  # lone surrogates
            raise PromptError("bad_encoding", f"{field} is not valid Unicode text", field) from error
        except TokenizerError as error:
            raise PromptError("engine_error", f"{field}: {error}", field) from error

    def _leading_bos(self, ids: Sequence[int]) -> int:
        bos = self._tokenizer.bos_token_id
        count = 0
        while count < len(ids) and ids[count] == bos:
            count += 1
        return count
