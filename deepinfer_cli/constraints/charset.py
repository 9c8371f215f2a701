"""Sets of characters: what Python's `re` means by one, written so that the engine means the same.

The engine's regular expressions are Rust's. A class such as `\\w` is another set there, and a later version
of Unicode, so classes are spelled out by category and held to the version that this Python knows.
"""

from __future__ import annotations

import sys
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

Ranges = list[tuple[int, int]]  # inclusive code points

MAX_CODE_POINT: Final = 0x10FFFF
_NEWEST_AGE: Final = (16, 0)  # of the engine's tables
_LAST_CASED: Final = 0x1E944  # no character above has another case
CATEGORIES: Final = {
    "L": "Letter",
    "Lu": "Uppercase_Letter",
    "Ll": "Lowercase_Letter",
    "Lt": "Titlecase_Letter",
    "Lm": "Modifier_Letter",
    "Lo": "Other_Letter",
    "M": "Mark",
    "Mn": "Nonspacing_Mark",
    "Mc": "Spacing_Mark",
    "Me": "Enclosing_Mark",
    "N": "Number",
    "Nd": "Decimal_Number",
    "Nl": "Letter_Number",
    "No": "Other_Number",
    "P": "Punctuation",
    "Pc": "Connector_Punctuation",
    "Pd": "Dash_Punctuation",
    "Ps": "Open_Punctuation",
    "Pe": "Close_Punctuation",
    "Pi": "Initial_Punctuation",
    "Pf": "Final_Punctuation",
    "Po": "Other_Punctuation",
    "S": "Symbol",
    "Sm": "Math_Symbol",
    "Sc": "Currency_Symbol",
    "Sk": "Modifier_Symbol",
    "So": "Other_Symbol",
    "Z": "Separator",
    "Zs": "Space_Separator",
    "Zl": "Line_Separator",
    "Zp": "Paragraph_Separator",
}


def category_name(written: str) -> str | None:
    """The short name of a general category in any of its spellings."""
    squeezed = written.replace("_", "").replace(" ", "").lower()
    for short, long in CATEGORIES.items():
        if squeezed in (short.lower(), long.replace("_", "").lower()):
            return short
    return None


@cache
def _age() -> str:
    major, minor = (int(part) for part in unicodedata.unidata_version.split(".")[:2])
    return "{}.{}".format(*min((major, minor), _NEWEST_AGE))


def known(items: str) -> str:
    """Class of the characters in `items` that this Python's Unicode has assigned."""
    return rf"[{items}&&\p{{age:{_age()}}}]"


def category(name: str) -> str:
    return known(rf"\p{{{name}}}")


@cache
def unicode_digit() -> str:
    return category("Nd")


@cache
def unicode_word() -> str:
    """str.isalnum() is letters and everything with a numeric value; marks are no part of it."""
    return known(r"\p{L}\p{N}_")


# str.isspace(), which has four control characters that Unicode's White_Space lacks.
PYTHON_SPACES: Final[Ranges] = [
    (0x09, 0x0D), (0x1C, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
    (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
]  # fmt: skip
ECMA_SPACES: Final[Ranges] = [
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
]  # fmt: skip
ASCII_DIGITS: Final[Ranges] = [(0x30, 0x39)]
ASCII_WORD: Final[Ranges] = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
ASCII_SPACES: Final[Ranges] = [(0x09, 0x0D), (0x20, 0x20)]


def union(*sets: Iterable[tuple[int, int]]) -> Ranges:
    found: Ranges = []
    for low, high in sorted(pair for ranges in sets for pair in ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def common(first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]) -> Ranges:
    return union((max(a, c), min(b, d)) for a, b in first for c, d in second if max(a, c) <= min(b, d))


def spelled(ranges: Iterable[tuple[int, int]]) -> str:
    """Content of a class. Code points are written as numbers: nothing in it needs quoting anywhere."""
    parts = []
    for low, high in ranges:
        parts.append(rf"\x{{{low:X}}}" if low == high else rf"\x{{{low:X}}}-\x{{{high:X}}}")
    return "".join(parts)


@cache
def _cases() -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """(cased code points in order, code point -> all that `re.IGNORECASE` takes for the same)."""
    dotted = {ord("i"), ord("İ")}  # str.lower() of the second is two characters; `re` takes the first of them
    by_upper: dict[str, set[int]] = {}
    groups: dict[int, set[int]] = dict.fromkeys(dotted, dotted)
    for code in range(min(_LAST_CASED + 1, sys.maxunicode)):
        char = chr(code)
        lower, upper = char.lower(), char.upper()
        if lower == char == upper:
            continue
        members = {code, *(ord(form) for form in (lower, upper, char.title()) if len(form) == 1)}
        if len(upper) > 1:  # such as the two ligatures of "st"
            members |= by_upper.setdefault(upper, set())
            by_upper[upper].add(code)
        members = members.union(*(groups.get(other, ()) for other in members))
        for member in members:
            groups[member] = members
    same = {code: tuple(sorted(members)) for code, members in groups.items() if len(members) > 1}
    return sorted(same), same


def ignoring_case(ranges: Iterable[tuple[int, int]], *, ascii_only: bool = False) -> Ranges:
    """`ranges` and everything that differs from a member by case alone."""
    ranges = list(ranges)
    if ascii_only:
        lower = [(a + 32, b + 32) for a, b in common(ranges, [(0x41, 0x5A)])]
        upper = [(a - 32, b - 32) for a, b in common(ranges, [(0x61, 0x7A)])]
        return union(ranges, lower, upper)
    cased, same = _cases()
    more: Ranges = []
    for low, high in ranges:
        for code in cased[bisect_left(cased, low) :]:
            if code > high:
                break
            more += [(other, other) for other in same[code]]
    return union(ranges, more)


@cache
def category_ranges(name: str) -> tuple[tuple[int, int], ...]:
    """The characters of a general category, as this Python knows them."""
    of = unicodedata.category
    codes = (code for code in range(MAX_CODE_POINT + 1) if of(chr(code)).startswith(name))
    return tuple(union((code, code) for code in codes))


def complement(ranges: Sequence[tuple[int, int]]) -> Ranges:
    found: Ranges = []
    start = 0
    for low, high in ranges:
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE_POINT:
        found.append((start, MAX_CODE_POINT))
    return found
