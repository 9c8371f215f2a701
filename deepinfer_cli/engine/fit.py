"""Prompt and context: what fits, what is cut when the user allows it, and what to change when it does not."""

from __future__ import annotations

from deepinfer_cli.prompts.types import TextLimit
from deepinfer_cli.requests.types import FieldError, SamplingValues

# No text that a model was made for has so many characters a token on average; shorter ones are let through.
MAX_CHARS_PER_TOKEN = 16
LEAST_MAX_CHARS = 1 << 20
# Of one row: tokens of all its outputs, and scored tokens with their alternatives. A result is held whole.
MAX_RESULT_TOKENS = 1 << 24
MAX_RESULT_SCORES = 1 << 22


def text_limit(context: int, policy: str) -> TextLimit:
    """For a context of so many tokens."""
    return TextLimit(max(LEAST_MAX_CHARS, MAX_CHARS_PER_TOKEN * context), may_cut=policy != "error")


def result_size(p: SamplingValues, num_prompt_tokens: int, context: int, cap: int) -> tuple[int, int]:
    """(tokens, scores) that the result of a row can have at most."""
    longest = min(cap if p.max_tokens is None else p.max_tokens, max(context - num_prompt_tokens, 0))
    scores = p.n * longest * (1 + p.top_logprobs) + num_prompt_tokens * (1 + p.prompt_logprobs)
    return p.n * longest, scores


def check_result_size(p: SamplingValues, num_prompt_tokens: int, context: int, cap: int, prefix: str) -> None:
    tokens, scores = result_size(p, num_prompt_tokens, context, cap)
    if tokens > MAX_RESULT_TOKENS:
        what = (
            f"{p.n:,} outputs of {tokens // p.n:,} tokens are more than the {MAX_RESULT_TOKENS:,} tokens of a"
        )
        raise FieldError("bad_param", f"{what} result; lower n or max_tokens", prefix + "n")
    if scores > MAX_RESULT_SCORES:
        what = f"{scores:,} log-probabilities are more than the {MAX_RESULT_SCORES:,} of a result"
        raise FieldError("bad_param", f"{what}; lower n, max_tokens or top_logprobs", prefix + "top_logprobs")


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
