"""`--model fake`: a model without weights, for checking pipelines.

Every byte is a token; the logits are a hash of the tokens before them, so its text is noise, but it obeys
every rule of a real model: sampling, seeds, stops, context, logprobs, prefix sharing and batch invariance.
It starts at once and needs no download. `--model fake:0.02` makes each token take 0.02 seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deepinfer_cli.errors import ModelError
from deepinfer_cli.prompts.types import NO_TEXT_LIMIT, PromptError, PromptInput, RenderedPrompt, TextLimit

NAME = "fake"
MAX_SECONDS_PER_TOKEN = 10.0
MAX_CONTEXT = 4096  # tokens
_SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_IM_START, _IM_END, _END_OF_TEXT = range(256, 256 + len(_SPECIALS))
VOCAB_SIZE = 256 + len(_SPECIALS)
_WEIGHTS_SEED = 2026
_BLOCK_TOKENS = 16
_FAULTS: Mapping[str, Callable[[float], float]] = {
    "seed": int,
    "throw_rate": float,
    "poison_token": int,
    "nan_rate": float,
    "copy_rate": float,
    "slow_rate": float,
    "slow_seconds": float,
    "hang_at_step": int,
    "hang_seconds": float,
}


def _fingerprint(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8, person=b"di-fake").hexdigest()


class FakeTokenizer:
    """UTF-8 bytes, then three special tokens."""

    vocab_size = VOCAB_SIZE
    fingerprint = _fingerprint(f"bytes {_SPECIALS}")
    bos_token_id: int | None = None
    adds_bos = False

    def __init__(self) -> None:
        self.token_bytes: Sequence[bytes] = [bytes([b]) for b in range(256)] + [s.encode() for s in _SPECIALS]
        self.special: Sequence[bool] = [False] * 256 + [True] * len(_SPECIALS)

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        if not parse_special:
            return list(text.encode())
        for i, special in enumerate(_SPECIALS):
            before, found, after = text.partition(special)
            if found:
                return [*self.encode(before, True), 256 + i, *self.encode(after, True)]
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(t for t in token_ids if t < 256).decode(errors="replace")


class FakeRenderer:
    """Messages between <|im_start|> and <|im_end|>; user text never becomes a special token."""

    has_template = False  # raw prompts are as good as messages here
    fingerprint = _fingerprint("im_start role newline content im_end newline")

    def render(self, prompt: PromptInput, limit: TextLimit = NO_TEXT_LIMIT) -> RenderedPrompt:
        if prompt.token_ids is not None:
            bad = next((i for i, t in enumerate(prompt.token_ids) if t >= VOCAB_SIZE), None)
            if bad is not None:
                field = f"prompt_token_ids[{bad}]"
                raise PromptError("bad_param", f"{field}: the vocabulary ends at {VOCAB_SIZE - 1}", field)
            return RenderedPrompt(list(prompt.token_ids), None, 0)
        if prompt.text is not None and not prompt.chat:
            text, was_cut = limit.fitted(prompt.text, "prompt")
            return RenderedPrompt(list(text.encode()), text, 0, ("truncated_prompt",) if was_cut else ())
        messages = list(prompt.messages or ())
        if prompt.text is not None:
            messages = [{"role": "user", "content": prompt.text}]
        if prompt.system is not None:
            messages.insert(0, {"role": "system", "content": prompt.system})
        for message in messages:
            TextLimit(limit.max_chars, may_cut=False).fitted(message["content"], "messages")
        tokens: list[int] = []
        text = ""
        for i, message in enumerate(messages):
            body = f"{message['role']}\n{message['content']}"
            tokens += [_IM_START, *body.encode()]
            text += f"<|im_start|>{body}"
            if prompt.continue_final_message and i == len(messages) - 1:
                return RenderedPrompt(tokens, text, 0)
            tokens += [_IM_END, *b"\n"]
            text += "<|im_end|>\n"
        tokens += [_IM_START, *b"assistant\n"]
        return RenderedPrompt(tokens, text + "<|im_start|>assistant\n", 0)


class FakeModel:
    """A LoadedModel (models/types.py)."""

    name = NAME
    family = "fake"
    fingerprint = f"fake:{VOCAB_SIZE}:{_WEIGHTS_SEED}"
    max_context = MAX_CONTEXT
    eos_token_ids: Sequence[int] = (_IM_END, _END_OF_TEXT)
    end_of_thinking: Sequence[int] = ()

    def __init__(self, seconds_per_token: float = 0.0, faults: Mapping[str, float] | None = None) -> None:
        self._seconds_per_token = seconds_per_token
        self._faults = dict(faults or {})
        self.generation_defaults: Mapping[str, Any] = {}
        self.tokenizer = FakeTokenizer()
        self.renderer = FakeRenderer()
        self.description: Mapping[str, Any] = {"format": "none", "parameters": 0, "source": "built in"}

    def make_executor(self, pool: Any) -> Any:
        from deepinfer_cli import _native

        executor = _native.FakeExecutor(
            VOCAB_SIZE,
            MAX_CONTEXT,
            _WEIGHTS_SEED,
            _BLOCK_TOKENS,
            seconds_per_token=self._seconds_per_token,
        )
        if not self._faults:
            return executor
        faults: dict[str, Any] = {key: _FAULTS[key](value) for key, value in self._faults.items()}
        return _native.FaultyExecutor(executor, **faults)


def is_fake(name: str | None) -> bool:
    return name is not None and (name == NAME or name.startswith(NAME + ":"))


def load_fake(name: str) -> FakeModel:
    """`name`: "fake", "fake:SECONDS" (time of each token, to see a pipeline under load), and for tests
    "fake:SECONDS,FAULT=NUMBER,..." with the faults of native/src/executor/faulty_executor.h."""
    _, _, options = name.partition(":")
    seconds, faults = 0.0, {}
    try:
        for option in options.split(",") if options else ():
            key, is_fault, value = option.partition("=")
            if not is_fault:
                seconds = float(option)
            elif key in _FAULTS:
                faults[key] = float(value)
            else:
                seconds = -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_SECONDS_PER_TOKEN:
        hint = f"fake:SECONDS takes 0 to {MAX_SECONDS_PER_TOKEN:g} seconds a token"
        raise ModelError(f"unknown model {name}", hint)
    return FakeModel(seconds, faults)
