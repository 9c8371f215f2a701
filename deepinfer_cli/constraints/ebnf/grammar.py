"""What every notation is read into: rules over a list of nodes. Children stand before their parents in the
list, so that whatever is computed about nodes is one loop and never a recursion."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from deepinfer_cli.constraints.ebnf.charset import Charset
from deepinfer_cli.constraints.types import ConstraintError, ErrorCode

MAX_TEXT_BYTES: Final = 1 << 20
MAX_NODES: Final = 55_000
MAX_NESTING: Final = 1_000  # of brackets
MAX_COUNT: Final = 10_000  # of one repetition
MAX_COUNTS: Final = 1_000_000_000  # of repetitions in each other, multiplied
_MAX_SHOWN_CHARS: Final = 60


@dataclass(slots=True, frozen=True)
class Text:
    text: str  # never empty


@dataclass(slots=True, frozen=True)
class Chars:
    chars: Charset  # one character of these


@dataclass(slots=True, frozen=True)
class Ref:
    name: str
    at: int  # offset in the grammar's text, as everywhere


@dataclass(slots=True, frozen=True)
class Seq:
    items: tuple[int, ...]  # none: the empty text


@dataclass(slots=True, frozen=True)
class Alt:
    items: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class Repeat:
    item: int
    low: int
    high: int | None  # None: without end


@dataclass(slots=True, frozen=True)
class Minus:
    """Characters of one set that are not in another; a `Chars` once all rules are known."""

    item: int
    without: int
    at: int


Node = Text | Chars | Ref | Seq | Alt | Repeat | Minus


def moved(
    node: Ref | Seq | Alt | Repeat, new_index: Sequence[int] | Mapping[int, int]
) -> Ref | Seq | Alt | Repeat:
    """The node with its parts at their new places."""
    match node:
        case Seq():
            return Seq(tuple(new_index[item] for item in node.items))
        case Alt():
            return Alt(tuple(new_index[item] for item in node.items))
        case Repeat():
            return Repeat(new_index[node.item], node.low, node.high)
    return node


def children(node: object) -> tuple[int, ...]:
    match node:
        case Seq() | Alt():
            return node.items
        case Repeat():
            return (node.item,)
        case Minus():
            return (node.item, node.without)
    return ()


@dataclass(slots=True)
class Rule:
    name: str
    body: int  # index of its node
    at: int


@dataclass(slots=True)
class Grammar:
    source: Source
    start: str
    nodes: list[Node] = field(default_factory=list)
    rules: dict[str, Rule] = field(default_factory=dict)


class Source:
    """A grammar's text; says where something is wrong in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts: list[int] = []

    def place(self, at: int) -> str:
        if not self._starts:
            self._starts = [0]
            self._starts.extend(i + 1 for i, char in enumerate(self.text) if char == "\n")
        line = bisect_right(self._starts, at)
        return f"line {line}, column {at - self._starts[line - 1] + 1}"

    def refuse(self, at: int, what: str, code: ErrorCode = "bad_schema") -> NoReturn:
        raise ConstraintError(code, f"{self.place(at)} of the grammar: {what}")


def shown(text: str) -> str:
    """A piece of the user's text in a message: short and on one line."""
    cut = text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"
    return ascii(cut) if any(not char.isprintable() for char in cut) else f"'{cut}'"


@dataclass(slots=True)
class _Group:
    closing: str  # what ends it
    at: int
    items: list[int] = field(default_factory=list)  # of the alternative that is being read
    alternatives: list[int] = field(default_factory=list)
    low: int = 1  # how often the whole bracket stands there
    high: int | None = 1
    times: int = 1  # how often the next item does
    minus_at: int = -1  # of a '-' whose right side is being read
    num_left: int = 0  # items up to that '-'


class Builder:
    """Takes a grammar's parts in the order of its text. Open brackets are a list, not calls."""

    def __init__(self, source: Source) -> None:
        self.grammar = Grammar(source, "")
        self.source = source
        self._groups: list[_Group] = []

    def rule(self, name: str, at: int) -> None:
        """The name of a rule whose body follows."""
        self.end_rule(at)
        if name in self.grammar.rules:
            first = self.source.place(self.grammar.rules[name].at)
            self.source.refuse(at, f"the rule {shown(name)} is there twice (first at {first})")
        self.grammar.rules[name] = Rule(name, -1, at)
        self.grammar.start = self.grammar.start or name
        self._groups = [_Group("", at)]

    def end_rule(self, at: int) -> None:
        if not self._groups:
            return
        if len(self._groups) > 1:
            group = self._groups[-1]
            self.source.refuse(group.at, f"the bracket is never closed: {group.closing!r} is missing")
        self._settle()
        rule = next(reversed(self.grammar.rules.values()))
        rule.body = self._finish(self._groups.pop())

    @property
    def depth(self) -> int:
        return len(self._groups) - 1

    def add(self, node: Node) -> None:
        self._next_item()
        self._append(self.node(node))

    def times(self, count: int, at: int) -> None:
        """The next item stands there so often."""
        self._check_count(count, at)
        self._next_item()
        self._groups[-1].times = count

    def minus(self, at: int) -> None:
        """The last item without the one that follows."""
        self._settle()
        group = self._groups[-1]
        if not group.items:
            self.source.refuse(at, "there is nothing before the '-'")
        group.minus_at, group.num_left = at, len(group.items)

    def text(self, text: str) -> None:
        self.add(Text(text) if text else Seq(()))

    def chars(self, chars: Charset, at: int) -> None:
        if not chars:
            self.source.refuse(at, "no character is in this set")
        self.add(Chars(chars))

    def alternative(self) -> None:
        self._settle()
        group = self._groups[-1]
        group.alternatives.append(self._sequence(group.items))
        group.items = []

    def open(self, closing: str, at: int, low: int = 1, high: int | None = 1) -> None:
        if self.depth >= MAX_NESTING:
            self.source.refuse(at, f"brackets are nested deeper than {MAX_NESTING:,}", "unsupported_schema")
        self._next_item()
        self._groups.append(_Group(closing, at, low=low, high=high))

    def close(self, closing: str, at: int) -> None:
        if self.depth < 1 or self._groups[-1].closing != closing:
            self.source.refuse(at, f"{closing!r} closes nothing that is open here")
        self._settle()
        group = self._groups.pop()
        self._append(self._repeated(self._finish(group), group.low, group.high))

    def repeat_last(self, low: int, high: int | None, at: int) -> None:
        items = self._groups[-1].items
        if not items or (len(items) == self._groups[-1].num_left and self._groups[-1].minus_at >= 0):
            self.source.refuse(at, "there is nothing before this to repeat")
        if high is not None and high < low:
            self.source.refuse(at, f"the count is out of order: {low} is more than {high}")
        self._check_count(max(low, high or 0), at)
        items[-1] = self._repeated(items[-1], low, high)

    def node(self, node: Node) -> int:
        nodes = self.grammar.nodes
        if len(nodes) >= MAX_NODES:
            raise ConstraintError(
                "unsupported_schema", f"the grammar has more than {MAX_NODES:,} symbols and groups"
            )
        nodes.append(node)
        return len(nodes) - 1

    def _check_count(self, count: int, at: int) -> None:
        if count > MAX_COUNT:
            self.source.refuse(at, f"a count is greater than {MAX_COUNT:,}", "unsupported_schema")

    def _next_item(self) -> None:
        group = self._groups[-1]
        if group.minus_at >= 0 and len(group.items) > group.num_left:
            self._settle()

    def _append(self, index: int) -> None:
        group = self._groups[-1]
        group.items.append(self._repeated(index, group.times, group.times))
        group.times = 1

    def _settle(self) -> None:
        """Ends what a '-' has begun."""
        group = self._groups[-1]
        if group.minus_at < 0:
            return
        if len(group.items) == group.num_left:
            self.source.refuse(group.minus_at, "there is nothing behind the '-'")
        without, item = group.items.pop(), group.items.pop()
        group.items.append(self.node(Minus(item, without, group.minus_at)))
        group.minus_at = -1

    def _sequence(self, items: list[int]) -> int:
        return items[0] if len(items) == 1 else self.node(Seq(tuple(items)))

    def _finish(self, group: _Group) -> int:
        last = self._sequence(group.items)
        if not group.alternatives:
            return last
        return self.node(Alt((*group.alternatives, last)))

    def _repeated(self, item: int, low: int, high: int | None) -> int:
        if (low, high) == (1, 1):
            return item
        return self.node(Seq(()) if high == 0 else Repeat(item, low, high))
