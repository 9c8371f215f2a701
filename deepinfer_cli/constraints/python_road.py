"""The constraint engine through its Python interface: what takes over where its C functions do not fit.

The masks of a step are computed by the engine's own threads in one call, without the GIL. Masks and messages
are those of the native road; only a model whose spelling no native encoder knows has more forced tokens here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepinfer_cli._native import (
    CONSTRAINT_LEXER_STATES,
    CONSTRAINT_SLICES,
    BpeTokenizer,
    ConstraintTemplate,
    PythonMatchers,
)


class PythonRoad:
    """compile() as of _native.Llguidance."""

    def __init__(
        self,
        tokens: Sequence[bytes],
        special: Sequence[bool],
        eos_token_ids: Sequence[int],
        bpe: BpeTokenizer | None,
    ) -> None:
        from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer

        vocabulary: Any = _Vocabulary(tokens, special, eos_token_ids, bpe)  # its base class is not needed
        self._tokenizer = LLTokenizer(vocabulary, eos_token=list(eos_token_ids), slices=CONSTRAINT_SLICES)
        self._new_matcher = LLMatcher
        self._limits = LLParserLimits(verbose_errors=False, max_lexer_states=CONSTRAINT_LEXER_STATES)
        self._matchers = PythonMatchers(_Calls(LLExecutor()), list(special))

    def compile(self, grammar: str) -> ConstraintTemplate:
        def make_matcher() -> Any:
            return self._new_matcher(self._tokenizer, grammar, log_level=0, limits=self._limits)

        return self._matchers.compile(make_matcher)


class _Calls:
    """What the native engine calls once or twice a step, for all matchers of the step."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def accept(self, matchers: list[Any], tokens: list[int]) -> list[bool]:
        # A token that is refused would end the matcher for good, so it is asked for first.
        taken = [
            not matcher.is_stopped() and matcher.validate_tokens([token]) == 1
            for matcher, token in zip(matchers, tokens, strict=True)
        ]
        pairs = [pair for pair, ok in zip(zip(matchers, tokens, strict=True), taken, strict=True) if ok]
        answers = iter(self._executor.consume_token_par(pairs) if pairs else ())
        return [ok and next(answers) for ok in taken]

    def fill_masks(self, matchers: list[Any], address: int, mask_bytes: int) -> list[bool]:
        pairs = [(matcher, i) for i, matcher in enumerate(matchers)]
        self._executor.unsafe_compute_mask_ptr(pairs, address, mask_bytes, len(pairs))
        return [not matcher.is_error() for matcher in matchers]  # a failed one allows the end, so it is asked


class _Vocabulary:
    """What LLTokenizer wants of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(
        self,
        tokens: Sequence[bytes],
        special: Sequence[bool],
        eos_token_ids: Sequence[int],
        bpe: BpeTokenizer | None,
    ) -> None:
        self.eos_token_id = eos_token_ids[0]
        # As on the native road: ordinary tokens that would look like special ones are never allowed.
        table = list(zip(tokens, special, strict=True))
        self.tokens = [token if is_special or token[:1] != b"\xff" else b"" for token, is_special in table]
        self.special_token_ids = [i for i, (token, is_special) in enumerate(table) if is_special and token]
        self._ids = {token: i for i, (token, is_special) in enumerate(table) if token and not is_special}
        self._longest = max(map(len, self._ids))
        self._bpe = bpe

    def __call__(self, text: str) -> list[int]:
        data = text.encode()
        if self._bpe is None:
            return self._spell_greedily(data, self._longest)
        ids = self._bpe.encode(data, False)
        if b"".join(self.tokens[i] for i in ids) == data:
            return ids
        return self._spell_greedily(data, 1)

    def _spell_greedily(self, data: bytes, longest: int) -> list[int]:
        """Up to a byte for which there is no token: no text can have it."""
        ids: list[int] = []
        at = 0
        while at < len(data):
            sizes = range(min(longest, len(data) - at), 0, -1)
            size = next((size for size in sizes if data[at : at + size] in self._ids), None)
            if size is None:
                break
            ids.append(self._ids[data[at : at + size]])
            at += size
        return ids
