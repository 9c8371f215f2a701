"""SentencePiece BPE vocabularies (`tokenizer.ggml.model` = llama): pieces with scores, bytes as fallback.

SentencePiece joins, again and again, the two neighbours whose union has the best score. The library's BPE
joins by a list of ranked pairs. Both give the same ids when the list has every way of splitting every
piece into two others, best piece first: that list is made here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from deepinfer_cli.tokenizer.library import TokenizerError, library_panics

SPACE = "\u2581"
MAX_SPLIT_CHARS = 1 << 28  # sum of the squared lengths of all pieces; published ones have some ten millions
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def piece_bytes(token: str) -> bytes:
    """Bytes of a piece: U+2581 is a space, <0x0A> is a byte."""
    byte = _BYTE_PIECE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(SPACE, " ").encode("utf-8", "replace")


def piece_table(tokens: Sequence[str], literal: Sequence[int]) -> list[bytes]:
    """[len(tokens)] bytes of each id; ids in `literal` stand for their own spelling."""
    table = [piece_bytes(token) for token in tokens]
    for i in literal:
        table[i] = tokens[i].encode("utf-8", "replace")
    return table


def build_pieces(
    tokens: Sequence[str],
    scores: Sequence[float],
    *,
    unknown: int,
    add_space_prefix: bool,
    added: Sequence[int],
    special: Sequence[bool],
) -> Any:
    """A `tokenizers.Tokenizer`. tokens, scores, special: [vocab]; added: ids that are found before pieces."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    vocab = {token: i for i, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        twice = next(token for i, token in enumerate(tokens) if vocab[token] != i)
        raise TokenizerError(f"tokenizer.ggml.tokens lists {twice!r} twice")
    steps: list[Any] = [normalizers.Prepend(SPACE)] if add_space_prefix else []
    try:
        with library_panics():
            backend = Tokenizer(
                models.BPE(
                    vocab,
                    _ranked_pairs(tokens, scores, vocab, set(added)),
                    unk_token=tokens[unknown],
                    fuse_unk=True,
                    byte_fallback=True,
                )
            )
        backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
        backend.decoder = decoders.Sequence(
            [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        for wanted in (True, False):
            extra = [
                AddedToken(tokens[i], special=wanted, normalized=False)
                for i in added
                if special[i] == wanted and tokens[i]
            ]
            (backend.add_special_tokens if wanted else backend.add_tokens)(extra)
    except TokenizerError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise TokenizerError(f"tokenizer.ggml.tokens do not make a vocabulary: {error}") from error
    return backend


def _ranked_pairs(
    tokens: Sequence[str], scores: Sequence[float], vocab: dict[str, int], added: set[int]
) -> list[tuple[str, str]]:
    """(left, right) of every split of every piece, best piece first."""
    if sum([len(token) ** 2 for token in tokens]) > MAX_SPLIT_CHARS:
        raise TokenizerError(
            f"tokenizer.ggml.tokens has more long pieces than can be split ({len(tokens):,})"
        )
    order = sorted(
        (i for i in range(len(tokens)) if i not in added and len(tokens[i]) > 1),
        key=lambda i: -scores[i],
    )
    pairs = []
    for i in order:
        piece = tokens[i]
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocab and right in vocab:
                pairs.append((left, right))
    return pairs
