"""ISO 14977: `name = a , b | c ;` with names of several words. The first rule starts."""

from __future__ import annotations

import re

from deepinfer_cli.constraints.ebnf.grammar import Builder, Grammar, Ref, Source, shown

_NAME = re.compile(r"[^\W\d]\w*+(?:[ \t\r\n]++\w++)*+")
_NUMBER = re.compile(r"\d++")
_MAX_DIGITS = 9
# Opening marks, with what closes them and how often the inside may stand there; longer ones first.
_OPENING: tuple[tuple[str, str, int, int | None], ...] = (
    ("(/", "]", 0, 1),
    ("(:", "}", 0, None),
    ("(", ")", 1, 1),
    ("[", "]", 0, 1),
    ("{", "}", 0, None),
)
_CLOSING = (("/)", "]"), (":)", "}"), (")", ")"), ("]", "]"), ("}", "}"))
_ENDS = ";."


def parse(text: str) -> Grammar:
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.source = Source(text)
        self.text = text
        self.builder = Builder(self.source)
        self.has_left = False  # an item is directly before: what follows is a comma, a mark or an end

    def parse(self) -> Grammar:
        at = self.skip_space(0)
        while at < len(self.text):
            start = at
            at = self.head(at)
            while at < len(self.text) and not (self.text[at] in _ENDS and self.builder.depth == 0):
                at = self.skip_space(self.element(at))
            if at >= len(self.text):
                self.builder.end_rule(at)
                self.source.refuse(start, "the rule does not end with ';'")
            self.builder.end_rule(at)
            at = self.skip_space(at + 1)
        if not self.builder.grammar.rules:
            self.source.refuse(0, "there is no rule")
        return self.builder.grammar

    def skip_space(self, at: int) -> int:
        """Behind white space and comments, which may stand in each other."""
        text, depth, start = self.text, 0, at
        while at < len(text):
            if text.startswith("(*", at):
                start = start if depth else at
                depth, at = depth + 1, at + 2
            elif depth and text.startswith("*)", at):
                depth, at = depth - 1, at + 2
            elif depth or text[at] in " \t\r\n\f\v":
                at += 1
            else:
                return at
        if depth:
            self.source.refuse(start, "the comment is never closed")
        return at

    def name(self, at: int) -> tuple[str, int] | None:
        found = _NAME.match(self.text, at)
        return None if found is None else (" ".join(found[0].split()), found.end())

    def head(self, at: int) -> int:
        found = self.name(at)
        if found is None:
            self.source.refuse(at, "a rule begins with its name and '='")
        name, end = found
        end = self.skip_space(end)
        if not self.text.startswith("=", end):
            self.source.refuse(at, f"behind the name {shown(name)} stands no '='")
        self.builder.rule(name, at)
        self.has_left = False
        return self.skip_space(end + 1)

    def element(self, at: int) -> int:
        text, char, builder = self.text, self.text[at], self.builder
        for mark, closing in _CLOSING:
            if text.startswith(mark, at):
                builder.close(closing, at)
                self.has_left = True
                return at + len(mark)
        if char == ",":
            return self.comma(at)
        if char in "|/!":
            builder.alternative()
            self.has_left = False
            return at + 1
        if char == "-":
            builder.minus(at)
            self.has_left = False
            return at + 1
        if self.has_left:
            self.source.refuse(at, f"a ',' is missing before {shown(char)}{_HINTS.get(char, '')}")
        return self.item(at)

    def comma(self, at: int) -> int:
        if not self.has_left:
            self.source.refuse(at, "there is nothing before the ','")
        self.has_left = False
        end = self.skip_space(at + 1)
        if end >= len(self.text) or self.text[end] in ",|/!-;.:)]}":
            self.source.refuse(at, "there is nothing behind the ','")
        return end

    def item(self, at: int) -> int:
        char, builder = self.text[at], self.builder
        for mark, closing, low, high in _OPENING:
            if self.text.startswith(mark, at):
                builder.open(closing, at, low, high)
                return at + len(mark)
        if char in "\"'":
            end = self.text.find(char, at + 1)
            if end < 0:
                self.source.refuse(at, "the quote is never closed")
            builder.text(self.text[at + 1 : end])
            self.has_left = True
            return end + 1
        if found := self.name(at):
            builder.add(Ref(found[0], at))
            self.has_left = True
            return found[1]
        if found_number := _NUMBER.match(self.text, at):
            return self.times(found_number[0], at)
        if char == "?":
            self.source.refuse(at, "a special sequence '? … ?' has no meaning here", "unsupported_schema")
        self.source.refuse(at, f"{shown(char)} means nothing here{_HINTS.get(char, '')}")

    def times(self, digits: str, at: int) -> int:
        end = self.skip_space(at + len(digits))
        if not self.text.startswith("*", end):
            self.source.refuse(at, "behind a number stands '*' and what is repeated")
        if len(digits) > _MAX_DIGITS:
            self.source.refuse(at, "a count has too many digits", "unsupported_schema")
        self.builder.times(int(digits), at)
        end = self.skip_space(end + 1)
        if end >= len(self.text) or self.text[end] in ",|/!-;.:)]}0123456789":
            self.source.refuse(at, "behind the '*' stands nothing to repeat")
        return end


_HINTS = {
    "*": "; repetition is written { … } or 3 * …",
    "+": "; repetition is written { … }",
    "?": "; an option is written [ … ]",
}
