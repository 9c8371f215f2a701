"""The EBNF of W3C's specifications: no escapes, characters by code (#x41), the first rule starts."""

from __future__ import annotations

import re

from deepinfer_cli.constraints.ebnf.charset import charset, complement
from deepinfer_cli.constraints.ebnf.gbnf import REPEATS, char_of
from deepinfer_cli.constraints.ebnf.grammar import Builder, Chars, Grammar, Ref, Source, shown

_SPACE = re.compile(r"[ \t\r\n]++")
_NAME = re.compile(r"[^\W\d]\w*+(?:[.-]\w++)*+")
_HEAD = re.compile(r"(?:\[\d+[a-z]?\][ \t]*+)?([^\W\d]\w*+(?:[.-]\w++)*+)[ \t\r\n]*+::=")
_NOTE = re.compile(r"\[\s*+(?:wfc|vc|nsc|WFC|VC|NSC)\s*+:\s[^\]]*+\]")
_CODE = re.compile(r"#x([0-9A-Fa-f]+)")
_MAX_DIGITS = 8


def parse(text: str) -> Grammar:
    return _Parser(text).parse()


class _Parser:
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
        if not self.builder.grammar.rules:
            self.source.refuse(0, "there is no rule")
        return self.builder.grammar

    def skip_space(self, at: int) -> int:
        """Behind white space, comments and notes such as `[ wfc: … ]`."""
        while True:
            if found := _SPACE.match(self.text, at) or _NOTE.match(self.text, at):
                at = found.end()
            elif self.text.startswith("/*", at):
                end = self.text.find("*/", at + 2)
                if end < 0:
                    self.source.refuse(at, "the comment is never closed")
                at = end + 2
            else:
                return at

    def is_head(self, at: int) -> bool:
        """A number in brackets is part of it where a line begins."""
        if self.text[at] == "[" and self.text[self.text.rfind("\n", 0, at) + 1 : at].strip(" \t"):
            return False
        return _HEAD.match(self.text, at) is not None

    def head(self, at: int) -> int:
        found = _HEAD.match(self.text, at)
        if found is None:
            self.source.refuse(at, "a rule begins with its name and '::='")
        self.builder.rule(found[1], found.start(1))
        return self.skip_space(found.end())

    def element(self, at: int) -> int:
        char, builder = self.text[at], self.builder
        if char in "\"'":
            return self.literal(at)
        if char == "[":
            return self.char_class(at)
        if char == "(":
            builder.open(")", at)
        elif char == ")":
            builder.close(")", at)
        elif char == "|":
            builder.alternative()
        elif char == "-":
            builder.minus(at)
        elif char in REPEATS:
            builder.repeat_last(*REPEATS[char], at)
        elif found := _NAME.match(self.text, at):
            builder.add(Ref(found[0], at))
            return found.end()
        elif char == "#":
            point, at = self.code(at)
            builder.add(Chars(((ord(point), ord(point)),)))
            return at
        else:
            self.source.refuse(at, f"{shown(char)} means nothing here{_HINTS.get(char, '')}")
        return at + 1

    def literal(self, at: int) -> int:
        end = self.text.find(self.text[at], at + 1)
        if end < 0 or "\n" in self.text[at:end]:
            self.source.refuse(at, "the quote is not closed on its line")
        self.builder.text(self.text[at + 1 : end])
        return end + 1

    def code(self, at: int) -> tuple[str, int]:
        found = _CODE.match(self.text, at)
        if found is None:
            self.source.refuse(at, "a character's code is written #x41")
        digits = found[1].lstrip("0") or "0"
        if len(digits) > _MAX_DIGITS:
            self.source.refuse(at, "the code has too many digits")
        return char_of(self.source, int(digits, 16), at), found.end()

    def char_class(self, start: int) -> int:
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

    def char(self, at: int) -> tuple[str, int]:
        if _CODE.match(self.text, at):
            return self.code(at)
        return self.text[at], at + 1


_HINTS = {
    "{": "; W3C's notation has no counts",
    ";": "; a rule ends where the next one begins",
    ".": "; W3C's notation has no sign for any character",
    "\\": "; W3C's notation has no escapes",
}
