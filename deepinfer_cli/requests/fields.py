"""Every key a row may have, and what a key that is almost one of them was meant to be."""

from __future__ import annotations

from deepinfer_cli.constraints.fields import ELSEWHERE, FIELDS

# Keys that select or describe the prompt.
PROMPT_FIELDS = ("prompt", "prompt_token_ids", "messages", "system", "chat", "continue_final_message")
TOOL_FIELDS = ("tools", "tool_choice", "chat_template_kwargs")

# Sampling keys; params.py holds type and range of each.
SAMPLING_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop",
    "stop_token_ids",
    "include_stop",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "n",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "ignore_eos",
    "logit_bias",
    "return_token_ids",
)
SEED_FIELDS = ("seed", "seq_seed")

# All spellings of "the text must fit this"; a row with one of them is never run without it.
CONSTRAINT_FIELDS = (*FIELDS, *(name for name in ELSEWHERE if name.startswith("guided_")))
IDENTITY_FIELDS = ("id", "custom_id", "metadata")
ENVELOPE_FIELDS = ("custom_id", "method", "url", "body")

# Known elsewhere and of consequence for the answer: refused unless they say "off".
REFUSED_FIELDS: dict[str, tuple[object, ...]] = {
    "stream": (None, False),
    "echo": (None, False),
    "suffix": (None, ""),
    "best_of": (None, 1),
    "use_beam_search": (None, False),
    "length_penalty": (None, 1, 1.0),
    "functions": (None, []),
    "function_call": (None, "none"),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "extra_body": (None, {}),
}
# Known elsewhere and without consequence for the answer of an offline run.
IGNORED_FIELDS = frozenset(
    ("model", "user", "store", "service_tier", "stream_options", "parallel_tool_calls", "safety_identifier")
)

KNOWN_FIELDS = frozenset(
    (
        *PROMPT_FIELDS,
        *TOOL_FIELDS,
        *SAMPLING_FIELDS,
        *SEED_FIELDS,
        *CONSTRAINT_FIELDS,
        *IDENTITY_FIELDS,
        *REFUSED_FIELDS,
        *IGNORED_FIELDS,
    )
)

# Names other tools use for the same thing.
_SYNONYMS = {
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_gen_toks": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "stop_words": "stop",
    "num_return_sequences": "n",
    "num_samples": "n",
    "random_seed": "seed",
    "repeat_penalty": "repetition_penalty",
    "system_prompt": "system",
    "system_message": "system",
    "include_stop_str_in_output": "include_stop",
    "input_ids": "prompt_token_ids",
    "token_ids": "prompt_token_ids",
    "json_schema": "constraint",
    "grammar": "constraint",
    "regex": "constraint",
}
# A typo in one of these would change the answer without a word; in the others it shows by itself.
_GUARDED = tuple(
    name
    for name in (
        *PROMPT_FIELDS,
        *TOOL_FIELDS,
        *SAMPLING_FIELDS,
        *SEED_FIELDS,
        *CONSTRAINT_FIELDS,
        "metadata",
        "custom_id",
    )
    if len(name) > 3
)


def suggestion(key: str) -> str | None:
    """The known field that `key` was probably meant to be, or None for somebody's own column."""
    lowered = key.lower()
    if lowered in KNOWN_FIELDS:
        return lowered
    if lowered in _SYNONYMS:
        return _SYNONYMS[lowered]
    squeezed = _squeeze(lowered)
    best: tuple[int, str] | None = None
    for name in _GUARDED:
        target = _squeeze(name)
        if squeezed == target:
            return name
        limit = 1 if len(target) < 7 else 2
        # In short names a changed letter often makes another word ("step", "need"); a lost, doubled or
        # swapped one hardly ever does.
        distance = _distance(squeezed, target, limit, allow_substitution=len(target) > 5)
        if distance <= limit and (best is None or distance < best[0]):
            best = (distance, name)
    return best[1] if best else None


def _squeeze(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "")


def _distance(a: str, b: str, limit: int, *, allow_substitution: bool) -> int:
    """Edits between a and b (insert, delete, swap of neighbours, and substitution where allowed); limit + 1
    when it is more than `limit`."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    previous2: list[int] = []
    previous = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        row = [i] + [0] * len(b)
        for j, cb in enumerate(b, 1):
            change = 0 if ca == cb else (1 if allow_substitution else 2)
            row[j] = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + change)
            if i > 1 and j > 1 and ca == b[j - 2] and a[i - 2] == cb:
                row[j] = min(row[j], previous2[j - 2] + 1)
        previous2, previous = previous, row
    return min(previous[-1], limit + 1)
