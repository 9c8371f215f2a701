"""Prompt and context: what fits, what is cut when the user allows it, and what to change when it does not."""

from __future__ import annotations

from deepinfer_cli.requests.types import FieldError


def fit_prompt(
    token_ids: list[int],
    *,
    num_bos: int,
    max_tokens: int | None,
    limit: int,
    policy: str,
    can_grow: bool = True,
) -> tuple[list[int], bool]:
    """The prompt to run and whether it was cut. At least one token must remain for the output, none when
    only the prompt is scored (max_tokens 0). `limit`: tokens of prompt and output together. `can_grow`:
    whether a larger max_model_len would be allowed."""
    room = 0 if max_tokens == 0 else 1
    if len(token_ids) + room <= limit:
        return token_ids, False
    if policy == "error":
        what = "the prompt" if room == 0 else "prompt and one new token"
        raise FieldError(
            "context_overflow",
            f"{what} must fit into {limit:,} tokens, but the prompt has {len(token_ids):,}; shorten it, "
            f"{'raise max_model_len, ' if can_grow else ''}or set truncate_prompt to left or middle",
            "prompt",
        )
    # A cut prompt leaves room for the output that was asked for, but keeps at least half of the context.
    keep = limit - max(room, min(max_tokens or 0, limit // 2))
    head = token_ids[:num_bos]
    body = token_ids[num_bos:]
    keep -= len(head)
    if policy == "left":
        return head + body[len(body) - keep :], True
    first = keep // 2
    return head + body[:first] + body[len(body) - (keep - first) :], True
