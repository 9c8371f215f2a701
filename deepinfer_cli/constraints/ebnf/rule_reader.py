"""What GBNF and W3C's notation have in common: a rule is a name, `::=`, and elements up to the next rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from deepinfer_cli.constraints.ebnf.charset import charset, complement
from deepinfer_cli.constraints.ebnf.grammar import Builder, Grammar, Source, shown

REPEATS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class RuleReader(ABC):
    """Every method takes an offset in the text and gives the one behind what it has read."""

    def __init__(self, text: str) -> None:
        self.source = Source(text)
        self.text = text
        self.builder = Builder(self.source)

    def parse(self) -> Grammar:
        at = self.skip_space(0)
        while at < len(self.text):
            at = self.head(at)
            while at < len(self.text) and not self.is_head(at):
                at = self.skip_space(self.element(at))
        self.builder.end_rule(at)
        return self.builder.grammar

    @abstractmethod
    def skip_space(self, at: int) -> int: ...

    @abstractmethod
    def is_head(self, at: int) -> bool:
        """Does a rule begin here?"""

    @abstractmethod
    def head(self, at: int) -> int:
        """A rule's name and `::=`."""

    @abstractmethod
    def element(self, at: int) -> int:
        """One symbol, bracket or mark of repetition."""

    @abstractmethod
    def char(self, at: int) -> tuple[str, int]:
        """A character of a class, however it is written."""

    def char_class(self, start: int) -> int:
        """`[a-z_]` or `[^a-z_]`."""
        at = start + 1
        negated = self.text.startswith("^", at)
        at += negated
        ranges = []
        while at < len(self.text) and self.text[at] != "]":
            low_at = at
            low, at = self.char(at)
            high = low
            if self.text.startswith("-", at) and not self.text.startswith("-]", at):
                if at + 1 >= len(self.text):
                    break
                high, at = self.char(at + 1)
            if high < low:
                self.source.refuse(low_at, f"the range is out of order: {shown(low)} is after {shown(high)}")
            ranges.append((ord(low), ord(high)))
        if at >= len(self.text):
            self.source.refuse(start, "the '[' is never closed")
        chars = charset(ranges)
        self.builder.chars(complement(chars) if negated and ranges else chars, start)
        return at + 1


def char_of(source: Source, point: int, at: int) -> str:
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        source.refuse(at, f"{point:X} is the code of no character")
    return chr(point)
