"""GBNF, the grammars of llama.cpp.

A rule goes on until a line begins with the next name and `::=`. That takes every grammar that llama.cpp
takes, in the same meaning, and also those whose alternatives stand on lines of their own.
"""

from __future__ import annotations

import re
from typing import Final

from deepinfer_cli.constraints.ebnf.charset import ANY
from deepinfer_cli.constraints.ebnf.grammar import Grammar, Ref, shown
from deepinfer_cli.constraints.ebnf.rule_reader import REPEATS, RuleReader, char_of

START: Final = "root"
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*+)++")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_HEAD = re.compile(r"([A-Za-z0-9_-]++)[ \t]*+::=")
_PLAIN = re.compile(r'[^"\\]+')
_COUNT = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", **{char: char for char in "\\\"[]-^'/"}}
_MAX_DIGITS = 9


def parse(text: str) -> Grammar:
    grammar = _Parser(text).parse()
    if START not in grammar.rules:
        grammar.source.refuse(0, f"there is no rule {START!r}, with which GBNF starts")
    grammar.start = START
    return grammar


class _Parser(RuleReader):
    def skip_space(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def is_head(self, at: int) -> bool:
        found = _HEAD.match(self.text, at)
        if found is None:
            return False
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        if line.strip(" \t\r"):
            self.source.refuse(at, f"the rule {shown(found[1])} does not begin on a line of its own")
        return True

    def head(self, at: int) -> int:
        found = _HEAD.match(self.text, at)
        if found is None:
            self.source.refuse(at, "a rule begins with its name and '::='")
        self.builder.rule(found[1], at)
        return self.skip_space(found.end())

    def element(self, at: int) -> int:
        char, builder = self.text[at], self.builder
        if char == '"':
            return self.literal(at)
        if char == "[":
            return self.char_class(at)
        if char == "(":
            builder.open(")", at)
        elif char == ")":
            builder.close(")", at)
        elif char == "|":
            builder.alternative()
        elif char == ".":
            builder.chars(ANY, at)
        elif char in REPEATS:
            builder.repeat_last(*REPEATS[char], at)
        elif char == "{":
            return self.count(at)
        elif found := _NAME.match(self.text, at):
            builder.add(Ref(found[0], at))
            return found.end()
        elif char in "<!":
            self.source.refuse(at, "tokens cannot be named in a grammar, only text", "unsupported_schema")
        else:
            self.source.refuse(at, f"{shown(char)} means nothing here{_hint(char)}")
        return at + 1

    def literal(self, start: int) -> int:
        at, parts = start + 1, []
        while at < len(self.text) and self.text[at] != '"':
            if found := _PLAIN.match(self.text, at):
                parts.append(found[0])
                at = found.end()
            else:
                char, at = self.char(at)
                parts.append(char)
        if at >= len(self.text):
            self.source.refuse(start, "the quote is never closed")
        self.builder.text("".join(parts))
        return at + 1

    def char(self, at: int) -> tuple[str, int]:
        if self.text[at] != "\\":
            return self.text[at], at + 1
        kind = self.text[at + 1 : at + 2]
        if kind in _HEX_DIGITS:
            end = at + 2 + _HEX_DIGITS[kind]
            digits = self.text[at + 2 : end]
            if len(digits) < _HEX_DIGITS[kind] or not all(c in "0123456789abcdefABCDEF" for c in digits):
                self.source.refuse(at, f"\\{kind} takes {_HEX_DIGITS[kind]} hexadecimal digits")
            return char_of(self.source, int(digits, 16), at), end
        if kind not in _ESCAPES:
            self.source.refuse(at, f"the escape {shown(self.text[at : at + 2])} is unknown")
        return _ESCAPES[kind], at + 2

    def count(self, at: int) -> int:
        found = _COUNT.match(self.text, at)
        if found is None or not (found[1] or found[3]):
            self.source.refuse(at, "a count is written {m}, {m,}, {,n} or {m,n}")
        low_text, comma, high_text = found.groups()
        if len(low_text) > _MAX_DIGITS or len(high_text) > _MAX_DIGITS:
            self.source.refuse(at, "a count has too many digits", "unsupported_schema")
        if not comma and high_text:
            self.source.refuse(at, "a count is written {m}, {m,}, {,n} or {m,n}")
        low = int(low_text or 0)
        high = int(high_text) if high_text else (None if comma else low)
        self.builder.repeat_last(low, high, at)
        return found.end()


def _hint(char: str) -> str:
    return "; text stands in double quotes" if char == "'" else ""
