"""Sets of characters as sorted ranges of code points. Surrogates are no characters: no set holds them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache

Charset = tuple[tuple[int, int], ...]  # inclusive ranges, sorted, neither touching nor overlapping

MAX_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
ANY: Charset = ((0, 0xD7FF), (0xE000, MAX_CODE_POINT))


def charset(ranges: Iterable[tuple[int, int]]) -> Charset:
    """Any ranges, in any order; what is no character is left out."""
    pieces: list[tuple[int, int]] = []
    for low, high in ranges:
        if low < _SURROGATES[0]:
            pieces.append((low, min(high, _SURROGATES[0] - 1)))
        if high > _SURROGATES[1]:
            pieces.append((max(low, _SURROGATES[1] + 1), high))
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pieces):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


@lru_cache(maxsize=1024)
def one(char: str) -> Charset:
    return ((ord(char), ord(char)),)


def complement(chars: Charset) -> Charset:
    gaps = []
    start = 0
    for low, high in chars:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE_POINT:
        gaps.append((start, MAX_CODE_POINT))
    return charset(gaps)


def union(sets: Iterable[Charset]) -> Charset:
    return charset(part for chars in sets for part in chars)


def intersection(a: Charset, b: Charset) -> Charset:
    found = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            found.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def meet(a: Charset, b: Charset) -> bool:
    """Is some character in both?"""
    few, many = (a, b) if len(a) <= len(b) else (b, a)
    for low, high in few:
        at = bisect_right(many, (high, MAX_CODE_POINT + 1)) - 1
        if at >= 0 and many[at][1] >= low:
            return True
    return False


def difference(a: Charset, b: Charset) -> Charset:
    return intersection(a, complement(b))


def contains(chars: Charset, char: str) -> bool:
    point = ord(char)
    at = bisect_right(chars, (point, MAX_CODE_POINT + 1)) - 1
    return at >= 0 and chars[at][1] >= point


# Where each length of UTF-8 begins, and how far a code point is shifted to leave what its first byte tells.
_LENGTHS = (
    (0, 0x7F, 0, 0x00),
    (0x80, 0x7FF, 6, 0xC0),
    (0x800, 0xFFFF, 12, 0xE0),
    (0x10000, MAX_CODE_POINT, 18, 0xF0),
)


@lru_cache(maxsize=4096)
def first_bytes(chars: Charset) -> int:
    """Bit b is set when the UTF-8 of some character begins with the byte b."""
    bits = 0
    for low, high in chars:
        for start, end, shift, lead in _LENGTHS:
            a, b = max(low, start), min(high, end)
            if a <= b:
                first, last = lead | (a >> shift), lead | (b >> shift)
                bits |= (1 << (last + 1)) - (1 << first)
    return bits


@lru_cache(maxsize=4_096)
def first_byte(char: str) -> int:
    return 1 << char.encode()[0]
