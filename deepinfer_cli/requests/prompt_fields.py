"""Shapes of prompt, messages and tools: everything a template may rely on is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepinfer_cli.prompts.types import PromptInput
from deepinfer_cli.requests.limits import in_short
from deepinfer_cli.requests.params import INT32_MAX, boolean
from deepinfer_cli.requests.types import FieldError, RowRules

ROLES = ("system", "user", "assistant", "tool")
_SOURCES = ("prompt", "prompt_token_ids", "messages")


def prompt_input(values: Mapping[str, Any], rules: RowRules, prefix: str = "") -> PromptInput:
    """`values`: decoded prompt and tool fields of one row; null means "as if absent"."""
    given = [name for name in _SOURCES if values.get(name) is not None]
    if not given:
        null = next((name for name in _SOURCES if name in values), None)
        why = f"{prefix}{null} is null" if null else "the row has no prompt, prompt_token_ids or messages"
        raise FieldError("missing_prompt", why, prefix + (null or "prompt"))
    if len(given) > 1:
        message = f"give one of {' and '.join(prefix + name for name in given)}, not both"
        raise FieldError("bad_param", message, prefix + given[1])
    chat = _flag(values, "chat", rules.chat, prefix)
    continue_final = _flag(values, "continue_final_message", rules.continue_final_message, prefix)
    tools, tool_choice = _tools(values, prefix)
    kwargs = values.get("chat_template_kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise _shape(prefix + "chat_template_kwargs", "an object")
    system = values.get("system")
    if system is not None and not isinstance(system, str):
        raise _shape(prefix + "system", "a string")
    own_system = system is not None
    if system is None:
        system = rules.system

    name = given[0]
    if name == "messages":
        messages = _messages(values["messages"], prefix)
        _check_last(messages, continue_final, prefix)
        has_system = any(message["role"] == "system" for message in messages)
        return PromptInput(
            messages=messages,
            system=None if has_system else system,
            continue_final_message=continue_final,
            tools=tools,
            tool_choice=tool_choice,
            template_kwargs=kwargs,
        )
    for field, value in (("tools", tools), ("chat_template_kwargs", kwargs)):
        if value is not None and not (chat and name == "prompt"):
            raise FieldError("bad_param", f"{prefix}{field} needs messages (or chat: true)", prefix + field)
    if own_system and not (chat and name == "prompt"):
        message = f"{prefix}system needs messages (or chat: true); a raw prompt has no place for it"
        raise FieldError("bad_param", message, prefix + "system")
    if values.get("continue_final_message") is True:
        field = prefix + "continue_final_message"
        raise FieldError("bad_param", f"{field} needs messages", field)
    value = values[name]
    if name == "prompt_token_ids" or (isinstance(value, list) and value and _is_int(value[0])):
        return PromptInput(token_ids=_token_ids(value, prefix + name))
    if not isinstance(value, str):
        hint = "; several prompts are several rows" if isinstance(value, list) else ""
        raise FieldError("bad_param", f"{prefix}prompt must be a string{hint}", prefix + "prompt")
    return PromptInput(
        text=value, system=system, chat=chat, tools=tools, tool_choice=tool_choice, template_kwargs=kwargs
    )


def _shape(field: str, wanted: str) -> FieldError:
    return FieldError("bad_param", f"{field} must be {wanted}", field)


def _flag(values: Mapping[str, Any], name: str, default: bool, prefix: str) -> bool:
    value = values.get(name)
    return default if value is None else boolean(prefix + name, value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _token_ids(value: Any, field: str) -> list[int]:
    """The renderer knows the vocabulary; here an id only has to look like one."""
    if not isinstance(value, list):
        raise _shape(field, "a list of token ids")
    if not value:
        raise FieldError("missing_prompt", f"{field} is empty", field)
    for i, token in enumerate(value):
        if not _is_int(token) or not 0 <= token <= INT32_MAX:
            where = f"{field}[{i}]"
            raise FieldError("bad_param", f"{where} is not a token id (an integer from 0)", where)
    return value


def _messages(value: Any, prefix: str) -> list[dict[str, Any]]:
    field = prefix + "messages"
    if not isinstance(value, list):
        raise _shape(field, "a list of messages")
    if not value:
        raise FieldError("missing_prompt", f"{field} is empty", field)
    return [_message(message, f"{field}[{i}]") for i, message in enumerate(value)]


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise _shape(where, "an object with role and content")
    role = message.get("role")
    if role == "developer":
        role = "system"
    if role not in ROLES:
        raise FieldError("bad_param", f"{where}.role must be one of {', '.join(ROLES)}", f"{where}.role")
    content = message.get("content")
    calls = message.get("tool_calls")
    if calls is not None and (role != "assistant" or not isinstance(calls, list)):
        raise _shape(f"{where}.tool_calls", "a list, in an assistant message")
    if content is None and not calls:
        raise FieldError("bad_param", f"{where}.content is missing", f"{where}.content")
    if isinstance(content, list):
        content = _text_of_parts(content, f"{where}.content")
    elif content is not None and not isinstance(content, str):
        raise _shape(f"{where}.content", "a string or a list of text parts")
    return {**message, "role": role, "content": content or ""}


def _text_of_parts(parts: list[Any], where: str) -> str:
    texts = []
    for i, part in enumerate(parts):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else None
            reason = (
                f"parts of type {in_short(kind)!r} are not supported"
                if isinstance(kind, str)
                else "not a text part"
            )
            raise FieldError("bad_param", f"{where}[{i}]: {reason}", f"{where}[{i}]")
        texts.append(part["text"])
    return "".join(texts)


def _check_last(messages: list[dict[str, Any]], continue_final: bool, prefix: str) -> None:
    field = f"{prefix}messages[{len(messages) - 1}]"
    last_is_assistant = messages[-1]["role"] == "assistant"
    if last_is_assistant and not continue_final:
        message = f"{field} is the assistant's; say continue_final_message: true to continue it"
        raise FieldError("bad_param", message, field)
    if continue_final and not last_is_assistant:
        message = "continue_final_message needs a last message of role assistant"
        raise FieldError("bad_param", message, field)


def _tools(
    values: Mapping[str, Any], prefix: str
) -> tuple[list[dict[str, Any]] | None, str | dict[str, Any] | None]:
    field = prefix + "tools"
    tools = values.get("tools")
    names = []
    if tools is not None:
        if not isinstance(tools, list):
            raise _shape(field, "a list of function tools")
        for i, tool in enumerate(tools):
            function = tool.get("function") if isinstance(tool, dict) else None
            if not isinstance(function, dict) or tool.get("type", "function") != "function":
                raise _shape(f"{field}[{i}]", 'an object {"type": "function", "function": {...}}')
            if not isinstance(function.get("name"), str) or not function["name"]:
                raise _shape(f"{field}[{i}].function.name", "a string")
            names.append(function["name"])
    choice = values.get("tool_choice")
    if choice is not None:
        _check_tool_choice(choice, names, prefix + "tool_choice")
    return (tools or None), (choice if tools else None)


def _check_tool_choice(choice: Any, names: list[str], field: str) -> None:
    if choice in ("none", "auto"):
        return
    wanted = choice
    if isinstance(choice, dict):
        function = choice.get("function")
        wanted = function.get("name") if isinstance(function, dict) else None
        if not isinstance(wanted, str):
            raise _shape(field, '"none", "auto" or {"type": "function", "function": {"name": ...}}')
        if wanted not in names:
            raise FieldError(
                "bad_param", f"{field} names {in_short(wanted)!r}, which is not among the tools", field
            )
    elif choice != "required":
        raise _shape(field, '"none", "auto", "required" or an object that names a function')
    raise FieldError(
        "unsupported_schema", f"{field}: this build cannot force a tool call; use auto or none", field
    )
