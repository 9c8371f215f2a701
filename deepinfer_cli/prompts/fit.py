"""Prompts that are longer than the context: refused, or cut where the user said."""

from __future__ import annotations

from deepinfer_cli.prompts.types import PromptError


def fit_prompt(token_ids: list[int], max_context: int, policy: str = "error") -> tuple[list[int], bool]:
    """The ids that run, and whether some were cut; one place is kept for a new token.

    policy: "error" raises PromptError(context_overflow); "left" drops the beginning; "middle" keeps the
    first and the last half, the first one larger by at most one.
    """
    limit = max_context - 1
    if len(token_ids) <= limit:
        return token_ids, False
    if limit < 1 or policy == "error":
        raise PromptError(
            "context_overflow",
            f"the prompt has {len(token_ids)} tokens and one new token must fit too, but the limit is "
            f"{max_context} (max_model_len); shorten the prompt, raise max_model_len, or set truncate_prompt "
            "to left or middle",
            None,
        )
    if policy == "left":
        return token_ids[-limit:], True
    head = (limit + 1) // 2
    return token_ids[:head] + (token_ids[head - limit :] if limit > head else []), True
