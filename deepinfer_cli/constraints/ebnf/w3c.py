"""The EBNF of W3C's specifications: no escapes, characters by code (#x41), the first rule starts."""

from __future__ import annotations

import re

from deepinfer_cli.constraints.ebnf.grammar import Chars, Grammar, Ref, shown
from deepinfer_cli.constraints.ebnf.rule_reader import REPEATS, RuleReader, char_of

_SPACE = re.compile(r"[ \t\r\n]++")
_NAME = re.compile(r"[^\W\d]\w*+(?:[.-]\w++)*+")
_HEAD = re.compile(r"(?:\[\d+[a-z]?\][ \t]*+)?([^\W\d]\w*+(?:[.-]\w++)*+)[ \t\r\n]*+::=")
_NOTE = re.compile(r"\[\s*+(?:wfc|vc|nsc|WFC|VC|NSC)\s*+:\s[^\]]*+\]")
_CODE = re.compile(r"#x([0-9A-Fa-f]+)")
_MAX_DIGITS = 8


def parse(text: str) -> Grammar:
    grammar = _Parser(text).parse()
    if not grammar.rules:
        grammar.source.refuse(0, "there is no rule")
    return grammar


class _Parser(RuleReader):
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
