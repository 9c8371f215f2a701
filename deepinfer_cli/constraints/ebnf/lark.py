"""Lark, the engine's own notation: looked over and passed through.

Taken is what speaks about text. Refused are tokens by name, grammars from elsewhere, and switches of the
engine, because each of them could let out a text that is not checked. The rules are read far enough to find
undefined and endless ones; what else is wrong in them the engine says when it compiles.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from deepinfer_cli.constraints.ebnf import checks
from deepinfer_cli.constraints.ebnf.emit import MAX_DEPTH
from deepinfer_cli.constraints.ebnf.grammar import Builder, Grammar, Ref, Source, Text, children, shown
from deepinfer_cli.constraints.ebnf.graph import components
from deepinfer_cli.constraints.together import MAX_TOGETHER
from deepinfer_cli.constraints.types import ConstraintError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

START = "start"
_MAX_BRACKETS = 100  # the engine's own parser takes somewhat more
MAX_LITERAL_CHARS = 400_000  # of a text or pattern; the engine does not hold 600,000
MAX_ALTERNATIVES = 15_000  # the engine's time grows with their square
_NUM_KEPT = 8
_TOKENS = re.compile(
    r"""(?P<space>[ \t\r\n]++|//[^\n]*+|\#[^\n]*+)
    |(?P<string>"(?:[^"\\\n]|\\.)*+"i?+)|(?P<regex>/(?!/)(?:[^/\\\n]|\\.)++/[a-z]*+)
    |(?P<import>%import[ \t]++common\.(?P<imported>\w++)(?:[ \t]*+->[ \t]*+(?P<alias>\w++))?+)
    |(?P<ignore>%ignore\b)|(?P<directive>%\w*+)|(?P<special><[^>\n]*+>)|(?P<grammar>@\w*+)
    |(?P<head>[?!]?+(?P<name>[A-Za-z_]\w*+)(?:\.\d++)?+(?P<attributes>\[[^\]\n]*+\])?+[ \t]*+:)
    |(?P<as>->[ \t]*+\w++)|(?P<ref>[A-Za-z_]\w*+)
    |(?P<count>~[ \t]*+\d++(?:[ \t]*+\.\.[ \t]*+\d++)?+|\{[\d, \t]++\})
    |(?P<mark>[()\[\]|*+?~&])""",
    re.X,
)
_CLOSING = {"(": ")", "[": "]"}


def check(text: str) -> str:
    grammar = _Reader(text).read()
    _check_depth(grammar)
    return text


def matches(grammar: str, text: str) -> bool:
    """By the engine, over bytes instead of tokens; no other reader of this notation is at hand."""
    matcher = _matcher(grammar)
    try:
        data = list(text.encode())
    except UnicodeEncodeError:
        return False
    if matcher.is_error():
        raise ConstraintError("bad_schema", f"the engine refuses the grammar: {shown(matcher.get_error())}")
    taken = matcher.deep_copy()
    return taken.try_consume_tokens(data) == len(data) and taken.is_accepting()


@lru_cache(maxsize=1)
def _bytes() -> LLTokenizer:
    from llguidance import LLTokenizer

    return LLTokenizer("byte")


@lru_cache(maxsize=_NUM_KEPT)
def _matcher(grammar: str) -> LLMatcher:
    from llguidance import LLMatcher

    return LLMatcher(_bytes(), check(grammar), log_level=0)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.source = Source(text)
        self.builder = Builder(self.source)
        self.imported: dict[str, int] = {}
        self.num_ignored = 0
        self.together: dict[str, list[int]] = {}  # places of the signs & of each rule
        self.refs: dict[str, list[str]] = {}
        self.name = ""  # of the rule that is being read
        self.num_alternatives = 0
        self.last = ""  # token before

    def read(self) -> Grammar:
        at = 0
        while at < len(self.text):
            found = _TOKENS.match(self.text, at)
            if found is None:
                self.source.refuse(at, f"{shown(self.text[at])} means nothing here")
            self.token(found)
            at = found.end()
        self.builder.end_rule(at)
        grammar = self.builder.grammar
        if START not in grammar.rules:
            self.source.refuse(0, f"there is no rule {START!r}, with which Lark starts")
        grammar.start = START
        for name, place in self.imported.items():
            if name not in grammar.rules:
                self.builder.rule(name, place)
                self.builder.text("x")
        self.builder.end_rule(at)
        self.check_together()
        return checks.check(grammar)

    def check_together(self) -> None:
        """The engine makes one automaton of a terminal and those in it; its time doubles with each sign."""
        names = {name: number for number, name in enumerate(self.refs)}
        edges = [
            [names[ref] for ref in refs if ref in names and not _is_rule(ref)] for refs in self.refs.values()
        ]
        order = list(names)
        totals = [0] * len(names)
        for members in components(edges):  # what is in a terminal comes before it
            inner = {other for member in members for other in edges[member]}.difference(members)
            total = sum(len(self.together.get(order[member], ())) for member in members)
            if not _is_rule(order[members[0]]):
                total += sum(totals[other] for other in inner)
            for member in members:
                totals[member] = min(total, MAX_TOGETHER)
            if total >= MAX_TOGETHER:
                name = order[members[0]]
                places = self.together.get(name) or [self.builder.grammar.rules[name].at]
                what = f"'&' is taken up to {MAX_TOGETHER - 1} times in a terminal and what it is made of"
                self.source.refuse(places[-1], what, "unsupported_schema")

    def token(self, found: re.Match[str]) -> None:
        kind, at, builder = found.lastgroup, found.start(), self.builder
        if kind == "import":
            self.imported[found["alias"] or found["imported"]] = at
        elif kind in ("directive", "special", "grammar"):
            self.source.refuse(at, f"{shown(found[0])}: {_REFUSED[kind]}", "unsupported_schema")
        elif kind == "head":
            if found["attributes"] and found["attributes"].strip("[ ]") != "lazy":
                self.source.refuse(
                    found.start("attributes"),
                    "attributes of a rule are not taken, but for lazy",
                    "unsupported_schema",
                )
            self.begin(found["name"], at)
        elif kind == "ignore":
            self.num_ignored += 1
            self.begin(f"%ignore {self.num_ignored}", at)
        elif kind != "space":
            if not builder.grammar.rules:
                self.source.refuse(at, f"{shown(found[0])} stands before the first rule")
            self.body(found[0], kind or "", at)
        if kind != "space":
            self.last = found[0]

    def begin(self, name: str, at: int) -> None:
        self.builder.rule(name, at)
        self.name = name
        self.refs[name] = []

    def body(self, text: str, kind: str, at: int) -> None:
        builder = self.builder
        if text == "~" and self.last != "&":
            # By itself it is all other bytes, those that stand for special tokens among them.
            what = "'~' is taken only behind '&': /(?s:.*)/ & ~X is any other text"
            self.source.refuse(at, what, "unsupported_schema")
        if kind in ("string", "regex"):
            if len(text) > MAX_LITERAL_CHARS:
                what = f"a text or pattern is longer than {MAX_LITERAL_CHARS:,} characters"
                self.source.refuse(at, what, "unsupported_schema")
            builder.add(Text(text))
        elif kind == "ref":
            builder.add(Ref(text, at))
            self.refs[self.name].append(text)
        elif text in _CLOSING:
            if builder.depth >= _MAX_BRACKETS:
                self.source.refuse(
                    at, f"brackets are nested deeper than {_MAX_BRACKETS}", "unsupported_schema"
                )
            builder.open(_CLOSING[text], at, 0 if text == "[" else 1)
        elif text in _CLOSING.values():
            builder.close(text, at)
        elif text == "&":
            self.together.setdefault(self.name, []).append(at)
        elif text == "|":
            self.num_alternatives += 1
            if self.num_alternatives >= MAX_ALTERNATIVES:
                what = f"more than {MAX_ALTERNATIVES:,} alternatives are too many for the engine"
                self.source.refuse(at, what, "unsupported_schema")
            builder.alternative()
        elif text in ("*", "?"):
            builder.repeat_last(0, None, at)


def _is_rule(name: str) -> bool:
    """Not a terminal, by the engine's spelling."""
    return name.lstrip("_")[:1].islower()


_REFUSED = {
    "directive": "only %ignore and %import common.… are taken",
    "special": "tokens cannot be named in a grammar, only text",
    "grammar": "other grammars cannot be used from this one",
}


def _check_depth(grammar: Grammar) -> None:
    """The engine compiles rules by recursion, and one that is too deep ends the process."""
    entered = {grammar.start}
    open_rules = [iter(_refs(grammar, grammar.start))]
    while open_rules:
        name = next(open_rules[-1], None)
        if name is None:
            open_rules.pop()
        elif name not in entered:
            entered.add(name)
            open_rules.append(iter(_refs(grammar, name)))
            if len(open_rules) > MAX_DEPTH:
                raise ConstraintError(
                    "unsupported_schema",
                    f"the grammar's rules refer to each other more than {MAX_DEPTH:,} deep, "
                    "which the engine cannot hold",
                )


def _refs(grammar: Grammar, name: str) -> list[str]:
    found = []
    waiting = [grammar.rules[name].body]
    while waiting:
        node = grammar.nodes[waiting.pop()]
        if isinstance(node, Ref):
            found.append(node.name)
        waiting.extend(reversed(children(node)))
    return found
