"""One chat template: messages in, the model's own conversation text out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from deepinfer_cli.errors import in_short
from deepinfer_cli.prompts.sandbox import chat_environment
from deepinfer_cli.prompts.types import PromptError

MAX_PROMPT_CHARS = 32 << 20
# Ends the text of the message to be continued while the template renders; the prompt is cut there. The
# trailing space tells whether the template trims messages.
CONTINUE_MARK = "\ue000continue\ue001 "
# Names that a template gets from us; a row's template_kwargs may not replace them.
RESERVED = ("messages", "tools", "documents", "add_generation_prompt")


class ChatTemplate:
    """Compiled once, rendered per row. Raises ValueError when the template does not compile."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._environment = chat_environment()
        self._template, names = self._environment.load(source)
        self.source = source
        self.supports_tools = "tools" in names
        self._special_tokens = dict(special_tokens)  # bos_token, eos_token, ...: their spellings
        digest = hashlib.blake2b(source.encode("utf-8", "surrogatepass"), digest_size=8)
        digest.update(json.dumps(self._special_tokens, sort_keys=True).encode())
        self.fingerprint = digest.hexdigest()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The text that the model reads, up to where it has to go on. Raises PromptError."""
        turns = [_decoded_arguments(message) for message in messages]
        if continue_final_message:
            turns[-1] = _marked(turns[-1])
        names: dict[str, Any] = {**self._special_tokens, **self._extra(template_kwargs)}
        names.update(
            messages=turns,
            tools=tools,
            documents=None,
            add_generation_prompt=not continue_final_message,
        )
        text = self._run(names)
        return _cut_at_mark(text) if continue_final_message else text

    def _run(self, names: Mapping[str, Any]) -> str:
        try:
            return self._environment.run(self._template, names, MAX_PROMPT_CHARS)
        except jinja2.TemplateError as error:
            advice = ""
            if isinstance(error, jinja2.UndefinedError) and "strftime_now" in str(error):
                advice = "; it asks for today's date, which a row must give in chat_template_kwargs"
            what = f"chat template: {in_short(str(error))}{advice}"
        except RecursionError:
            what = "chat template: it nests without end"
        except Exception as error:  # an expression of the template can raise whatever it likes
            what = f"chat template: {in_short(f'{type(error).__name__}: {error}')}"
        raise PromptError("bad_param", what, "messages")

    def _extra(self, template_kwargs: Mapping[str, Any] | None) -> Mapping[str, Any]:
        for name in template_kwargs or ():
            if name in RESERVED:
                field = f"chat_template_kwargs.{name}"
                raise PromptError("bad_param", f"{field} is set by deepinfer itself", field)
        return template_kwargs or {}


def _decoded_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """Templates walk through the arguments of a tool call; rows write them as a JSON string."""
    turn = dict(message)
    calls = turn.get("tool_calls")
    if not isinstance(calls, list):
        return turn
    decoded = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            try:
                arguments = json.loads(function["arguments"] or "{}")
            except (ValueError, RecursionError):
                what = "the arguments of a tool call are not JSON"
                raise PromptError("bad_param", what, "messages") from None
            call = {**call, "function": {**function, "arguments": arguments}}
        decoded.append(call)
    turn["tool_calls"] = decoded
    return turn


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, str):
        raise PromptError("bad_param", "the message to continue has no text", "messages")
    return {**message, "content": content + CONTINUE_MARK}


def _cut_at_mark(text: str) -> str:
    at = text.rfind(CONTINUE_MARK.rstrip())
    if at < 0:
        what = "the chat template does not show the last message, so it cannot be continued"
        raise PromptError("bad_param", what, "continue_final_message")
    trims = not text.startswith(CONTINUE_MARK, at)
    return text[:at].rstrip() if trims else text[:at]
