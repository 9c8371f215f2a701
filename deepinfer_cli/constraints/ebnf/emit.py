"""Writes a grammar as the Lark text that the engine compiles.

Leaves of it are what the engine reads in one piece: words, or runs of characters of one set. The engine
compiles rules by recursion and holds a limited number of alternatives at one place: what it could not hold is
refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deepinfer_cli.constraints.ebnf.charset import Charset
from deepinfer_cli.constraints.ebnf.grammar import Alt, Ref, Repeat, Seq
from deepinfer_cli.constraints.types import ConstraintError

MAX_DEPTH: Final = 1_000  # of rules that refer to each other; at some thousands the engine's stack overflows
MAX_SYMBOLS: Final = 60_000
MAX_AT_START: Final = 1_900  # alternatives at one place; the engine takes 2,000 items
_ITEMS_OF_OPTION: Final = 2  # what may be left out is a rule of two alternatives
_NAMED_CHARS: Final = 12  # longer leaves get a name, so that they are written once


@dataclass(slots=True, frozen=True)
class Words:
    """One of these texts, none of them empty."""

    words: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Run:
    """Characters of one set, at least one."""

    chars: Charset
    low: int = 1
    high: int | None = 1


@dataclass(slots=True, frozen=True)
class Headed:
    """A character of one set, then some of another: names, numbers."""

    first: Charset
    chars: Charset
    low: int  # of the others
    high: int | None


Leaf = Words | Run | Headed
Part = Leaf | Ref | Seq | Alt | Repeat


@dataclass(slots=True)
class Parts:
    """A grammar of such leaves. Children stand before their parents."""

    start: str
    parts: list[Part]
    rules: dict[str, int]  # name -> its body


def emit(grammar: Parts) -> str:
    writer = _Writer(grammar)
    bodies = writer.write()
    _check_size(bodies)
    lines = [f"start: {writer.names[grammar.start]}"]
    lines += [f"{name}: {' | '.join(' '.join(alternative) for alternative in body)}" for name, body in bodies]
    lines += [f"{name}: {pattern}" for pattern, name in writer.leaf_names.items()]
    return "\n".join(lines) + "\n"


Body = list[list[str]]  # alternatives of symbols


class _Writer:
    def __init__(self, grammar: Parts) -> None:
        self.grammar = grammar
        self.names = {name: f"r{number}" for number, name in enumerate(grammar.rules)}
        self.leaf_names: dict[str, str] = {}
        self.symbols: dict[int, str] = {}  # how a part is written inside of an alternative
        self.bodies: list[tuple[str, Body]] = []

    def write(self) -> list[tuple[str, Body]]:
        """All rules with their bodies, the start first."""
        roots = set(self.grammar.rules.values())
        inside = self._written_inside()
        for index, part in enumerate(self.grammar.parts):
            if index not in inside and (index not in roots or not isinstance(part, (Seq, Alt))):
                self.symbols[index] = self._symbol(index, part)
        order = sorted(self.grammar.rules, key=lambda name: name != self.grammar.start)
        own = [(self.names[name], self._body(self.grammar.rules[name])) for name in order]
        return own + self.bodies

    def _written_inside(self) -> set[int]:
        """Sequences that are alternatives need no rule of their own."""
        return {
            item
            for part in self.grammar.parts
            if isinstance(part, Alt)
            for item in part.items
            if isinstance(self.grammar.parts[item], Seq)
        }

    def _symbol(self, index: int, part: Part) -> str:
        match part:
            case Words() | Run() | Headed():
                return self._leaf(part)
            case Ref():
                return self.names[part.name]
            case Repeat():
                inner = self.symbols[part.item]
                if inner[-1] in "*+?}":
                    inner = self._rule([[inner]])
                return inner + _suffix(part.low, part.high)
            case Seq() if not part.items:
                return '""'
        return self._rule(self._body(index))

    def _body(self, index: int) -> Body:
        part = self.grammar.parts[index]
        choices = part.items if isinstance(part, Alt) else (index,)
        return [self._alternative(choice) for choice in choices]

    def _alternative(self, index: int) -> list[str]:
        part = self.grammar.parts[index]
        if isinstance(part, Seq):
            return [self.symbols[item] for item in part.items] or ['""']
        return [self.symbols[index]]

    def _rule(self, body: Body) -> str:
        name = f"p{len(self.bodies)}"
        self.bodies.append((name, body))
        return name

    def _leaf(self, leaf: Leaf) -> str:
        pattern = leaf_pattern(leaf)
        if len(pattern) <= _NAMED_CHARS:
            return pattern
        return self.leaf_names.setdefault(pattern, f"T{len(self.leaf_names)}")


def leaf_pattern(leaf: Leaf) -> str:
    if isinstance(leaf, Words):
        return "/" + "|".join("".join(map(_escaped, word)) for word in leaf.words) + "/"
    head = _class(leaf.first) if isinstance(leaf, Headed) else ""
    return "/" + head + _class(leaf.chars) + _suffix(leaf.low, leaf.high) + "/"


def _class(chars: Charset) -> str:
    if len(chars) == 1 and chars[0][0] == chars[0][1]:
        return _escaped(chr(chars[0][0]))
    ranges = (
        _escaped(chr(low)) if low == high else f"{_escaped(chr(low))}-{_escaped(chr(high))}"
        for low, high in chars
    )
    return "[" + "".join(ranges) + "]"


def _escaped(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}"


def _suffix(low: int, high: int | None) -> str:
    if (low, high) == (1, 1):
        return ""
    if high is None:
        return {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    return "?" if (low, high) == (0, 1) else f"{{{low},{high}}}"


def refuse_too_large(num_symbols: int) -> None:
    if num_symbols > MAX_SYMBOLS:
        raise ConstraintError(
            "unsupported_schema",
            f"the grammar is too large for the engine: {num_symbols:,} symbols, {MAX_SYMBOLS:,} are taken",
        )


def _check_size(bodies: Sequence[tuple[str, Body]]) -> None:
    num_symbols = sum(len(alternative) for _, body in bodies for alternative in body)
    refuse_too_large(num_symbols)
    named = {
        name: [[_bare(symbol) for symbol in alternative] for alternative in body] for name, body in bodies
    }
    start = bodies[0][0]
    if _depth(named, start) > MAX_DEPTH:
        raise ConstraintError(
            "unsupported_schema",
            f"the grammar's rules refer to each other more than {MAX_DEPTH:,} deep, "
            "which the engine cannot hold",
        )
    at_start = _num_at_start(bodies, named)
    if at_start > MAX_AT_START:
        raise ConstraintError(
            "unsupported_schema",
            f"the grammar begins with {at_start:,} alternatives, of which the engine holds {MAX_AT_START:,}",
        )


def _num_at_start(bodies: Sequence[tuple[str, Body]], named: dict[str, Body]) -> int:
    """Alternatives with which the text may begin; not all behind rules that may be empty."""
    written = dict(bodies)
    reached = [bodies[0][0]]
    known = set(reached)
    count = 0
    for name in reached:  # grows while it is read
        count += len(written[name])
        for symbols, bare in zip(written[name], named[name], strict=True):
            for symbol, inner in zip(symbols, bare, strict=True):
                if inner in named and inner not in known:
                    known.add(inner)
                    reached.append(inner)
                if symbol[-1] not in "*?" and "{0," not in symbol:
                    break
                count += _ITEMS_OF_OPTION
    return count


def _bare(symbol: str) -> str:
    """Without the mark of repetition; leaves stay what they are, as no rule is named so."""
    return (
        symbol.rstrip("*+?") if symbol[-1] in "*+?" else symbol.split("{")[0] if symbol[0] in "rp" else symbol
    )


def _depth(bodies: dict[str, Body], start: str) -> int:
    """How deep the engine's recursion goes when it meets rules in the order of the text."""
    entered = {start}
    deepest = 0
    open_rules = [iter([symbol for alternative in bodies[start] for symbol in alternative])]
    while open_rules:
        symbol = next(open_rules[-1], None)
        if symbol is None:
            open_rules.pop()
        elif symbol in bodies and symbol not in entered:
            entered.add(symbol)
            open_rules.append(iter([inner for alternative in bodies[symbol] for inner in alternative]))
            deepest = max(deepest, len(open_rules))
    return deepest
