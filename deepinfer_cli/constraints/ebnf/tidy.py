"""The same language in fewer and larger parts: the candidates for what the engine reads in one piece.

Neighbouring texts become one, alternatives of single characters one set, alternatives of words one leaf,
repeated characters a run, to which a character of another set before it belongs. `(A | B)*` with a set A
becomes `A* (B A*)*`, so that a run is not followed by itself. Small rules are written where they are used,
because what may follow them differs from place to place; a rule that ends with itself becomes a loop, because
the engine pays for each level of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from deepinfer_cli.constraints.ebnf.charset import Charset, one, union
from deepinfer_cli.constraints.ebnf.emit import Headed, Leaf, Part, Parts, Run, Words
from deepinfer_cli.constraints.ebnf.grammar import Alt, Chars, Grammar, Ref, Repeat, Seq, Text
from deepinfer_cli.constraints.ebnf.graph import components

MAX_WORD_CHARS: Final = 200
_MAX_INLINED: Final = 12  # size of a rule that is written wherever it is used
_MAX_INLINED_ONCE: Final = 60  # and of one that is used once
_MAX_DOUBLED: Final = 100  # size of what (A | B)+ may write twice
_MAX_LOOPED: Final = 200  # size of a rule that is made a loop, as parts of it may double
_MAX_LOOP_DEPTH: Final = 20
_MAX_RUN: Final = 1_000_000
_SPARE: Final = 5_000


@dataclass(slots=True, frozen=True, eq=False)
class _Seq:
    items: tuple[_Expr, ...]
    size: int


@dataclass(slots=True, frozen=True, eq=False)
class _Alt:
    items: tuple[_Expr, ...]
    size: int


@dataclass(slots=True, frozen=True, eq=False)
class _Repeat:
    item: _Expr
    low: int
    high: int | None
    size: int


_Expr = Leaf | Ref | _Seq | _Alt | _Repeat
_EMPTY = _Seq((), 1)


def tidy(grammar: Grammar) -> Parts:
    exprs = _Builder(grammar).build()
    return _flattened(grammar.start, exprs)


def _size(expr: _Expr) -> int:
    return 1 if isinstance(expr, Words | Run | Headed | Ref) else expr.size


def _text(text: str) -> _Expr:
    if len(text) == 1:
        return Run(one(text))
    pieces = [text[at : at + MAX_WORD_CHARS] for at in range(0, len(text), MAX_WORD_CHARS)]
    return _seq([_text(piece) for piece in pieces]) if len(pieces) > 1 else Words((text,))


def _literal(expr: _Expr) -> str | None:
    if isinstance(expr, Words) and len(expr.words) == 1:
        return expr.words[0]
    if isinstance(expr, Run) and (expr.low, expr.high) == (1, 1):
        low, high = expr.chars[0][0], expr.chars[-1][1]
        return chr(low) if low == high else None
    return None


def _run(expr: _Expr) -> tuple[Charset, int, int | None] | None:
    """The set of a run and how many of it; as a part may be left out, from 0."""
    if isinstance(expr, Run):
        return expr.chars, expr.low, expr.high
    if isinstance(expr, _Repeat) and (expr.low, expr.high) == (0, 1):
        inner = expr.item
        if isinstance(inner, Run) and inner.low == 1:
            return inner.chars, 0, inner.high
    return None


def _run_of(chars: Charset, low: int, high: int | None) -> _Expr:
    if high == 0:
        return _EMPTY
    return Run(chars, low, high) if low else _Repeat(Run(chars, 1, high), 0, 1, 2)


def _seq(items: Iterable[_Expr]) -> _Expr:
    flat: list[_Expr] = []
    for item in items:
        for part in item.items if isinstance(item, _Seq) else (item,):
            joined = _joined(flat[-1], part) if flat else None
            if joined is None:
                flat.append(part)
            else:
                flat[-1] = joined
    if len(flat) == 1:
        return flat[0]
    return _Seq(tuple(flat), 1 + sum(map(_size, flat))) if flat else _EMPTY


def _joined(left: _Expr, right: _Expr) -> _Expr | None:
    first, second = _literal(left), _literal(right)
    if first is not None and second is not None:
        return Words((first + second,)) if len(first) + len(second) <= MAX_WORD_CHARS else None
    a, b = _run(left), _run(right)
    if a is not None and b is not None and a[0] == b[0]:
        return _run_of(a[0], a[1] + b[1], None if a[2] is None or b[2] is None else a[2] + b[2])
    if b is not None and isinstance(left, Headed) and left.chars == b[0]:
        high = None if left.high is None or b[2] is None else left.high + b[2]
        return Headed(left.first, left.chars, left.low + b[1], high)
    if b is not None and first is None and a is not None and a[1:] == (1, 1) and b[1:] != (1, 1):
        return Headed(a[0], *b)
    return None


def _alt(items: Iterable[_Expr]) -> _Expr:
    sets: list[Charset] = []
    words: dict[str, None] = {}
    others: list[_Expr] = []
    names: set[str] = set()
    can_be_empty = False
    waiting = list(items)[::-1]
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Alt):
            waiting.extend(item.items[::-1])
        elif isinstance(item, _Repeat) and (item.low, item.high) == (0, 1):
            can_be_empty = True
            waiting.append(item.item)
        elif item is _EMPTY:
            can_be_empty = True
        elif isinstance(item, Run) and (item.low, item.high) == (1, 1):
            sets.append(item.chars)
        elif isinstance(item, Words):
            words.update(dict.fromkeys(item.words))
        elif isinstance(item, Ref):
            if item.name not in names:
                names.add(item.name)
                others.append(item)
        else:
            others.append(item)
    flat: list[_Expr] = [Run(union(sets))] if sets else []
    if words:
        flat.append(Words(tuple(words)))
    flat += others
    if not flat:
        return _EMPTY
    found = flat[0] if len(flat) == 1 else _Alt(tuple(flat), 1 + sum(map(_size, flat)))
    return _repeat(found, 0, 1) if can_be_empty else found


def _repeat(item: _Expr, low: int, high: int | None) -> _Expr:
    if item is _EMPTY or high == 0:
        return _EMPTY
    if (low, high) == (1, 1):
        return item
    if isinstance(item, _Repeat):
        inner = (item.low, item.high)
        if inner == (0, 1):
            return _repeat(item.item, 0, high)
        if inner == (0, None):
            return item
        if inner == (1, None):
            return _repeat(item.item, low, None)
        if item.low == 1 and (low, high) == (0, 1):
            return _repeat(item.item, 0, item.high)
    if isinstance(item, Run) and item.low == 1:
        most = None if high is None or item.high is None else high * item.high
        if most is None or most <= _MAX_RUN:
            return _run_of(item.chars, low, most)
    if isinstance(item, _Alt) and high is None and low <= 1:
        rewritten = _spread(item, low)
        if rewritten is not None:
            return rewritten
    return _Repeat(item, low, high, 1 + _size(item))


def _spread(item: _Alt, low: int) -> _Expr | None:
    """(A | B)* as A* (B A*)*, and (A | B)+ as A+ (B A*)* | (B A*)+."""
    for part in item.items:
        if isinstance(part, Run) and part.low == 1 and part.high in (1, None):
            chars = part.chars
            rest = _alt(other for other in item.items if other is not part)
            run = _run_of(chars, 0, None)
            loop = _seq([rest, run])
            again = _Repeat(loop, 0, None, 1 + _size(loop))
            if low == 0:
                return _seq([run, again])
            if _size(loop) > _MAX_DOUBLED:
                return None
            once = _Repeat(loop, 1, None, 1 + _size(loop))
            return _alt([_seq([Run(chars, 1, None), again]), once])
    return None


class _Builder:
    """Rules in an order in which those that are used come first."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.exprs: dict[str, _Expr] = {}
        self.num_uses: dict[str, int] = dict.fromkeys(grammar.rules, 0)
        self.num_uses[grammar.start] = 1
        self.inline: set[str] = set()
        self.spare = 2 * len(grammar.nodes) + _SPARE

    def build(self) -> dict[str, _Expr]:
        """The rules that are still called, the start among them."""
        names = list(self.grammar.rules)
        numbers = {name: number for number, name in enumerate(names)}
        nodes = self._nodes_by_rule()
        edges = []
        for name in names:
            used = [node.name for index in nodes[name] if isinstance(node := self.grammar.nodes[index], Ref)]
            for other in used:
                self.num_uses[other] += 1
            edges.append([numbers[other] for other in used])
        for component in components(edges):
            for number in component:
                name = names[number]
                self.exprs[name] = self._rule(nodes[name])
                if number in edges[number]:
                    self.exprs[name] = _looped(self.exprs[name], name)
                calls_itself = number in edges[number] and _calls(self.exprs[name], name)
                if len(component) == 1 and not calls_itself:
                    limit = _MAX_INLINED_ONCE if self.num_uses[name] == 1 else _MAX_INLINED
                    if _size(self.exprs[name]) <= limit:
                        self.inline.add(name)
        return self._called()

    def _nodes_by_rule(self) -> dict[str, list[int]]:
        """Each rule's nodes, parts first. A rule's nodes stand together, before its body's own."""
        found: dict[str, list[int]] = {}
        start = 0
        for name, rule in sorted(self.grammar.rules.items(), key=lambda entry: entry[1].body):
            found[name] = list(range(start, rule.body + 1))
            start = rule.body + 1
        return found

    def _rule(self, indices: Sequence[int]) -> _Expr:
        made: dict[int, _Expr] = {}
        for index in indices:
            node = self.grammar.nodes[index]
            match node:
                case Text():
                    made[index] = _text(node.text)
                case Chars():
                    made[index] = Run(node.chars)
                case Ref():
                    made[index] = self._ref(node)
                case Seq():
                    made[index] = _seq(made[item] for item in node.items)
                case Alt():
                    made[index] = _alt(made[item] for item in node.items)
                case Repeat():
                    made[index] = _repeat(made[node.item], node.low, node.high)
        return made[indices[-1]]

    def _ref(self, node: Ref) -> _Expr:
        if node.name not in self.inline:
            return node
        expr = self.exprs[node.name]
        if self.num_uses[node.name] > 1:
            if self.spare < _size(expr):
                return node
            self.spare -= _size(expr)
        return expr

    def _called(self) -> dict[str, _Expr]:
        start = self.grammar.start
        called = {start: self.exprs[start]}
        waiting = [self.exprs[start]]
        while waiting:
            expr = waiting.pop()
            if isinstance(expr, Ref):
                if expr.name not in called:
                    called[expr.name] = self.exprs[expr.name]
                    waiting.append(called[expr.name])
            else:
                waiting.extend(_parts(expr))
        return called


def _parts(expr: _Expr) -> tuple[_Expr, ...]:
    if isinstance(expr, _Seq | _Alt):
        return expr.items
    return (expr.item,) if isinstance(expr, _Repeat) else ()


def _calls(expr: _Expr, name: str) -> bool:
    waiting = [expr]
    while waiting:
        top = waiting.pop()
        if isinstance(top, Ref) and top.name == name:
            return True
        waiting.extend(_parts(top))
    return False


def _looped(expr: _Expr, name: str) -> _Expr:
    """A rule whose alternatives end with itself or not: any number of the former, then one of the latter."""
    if _size(expr) > _MAX_LOOPED:
        return expr
    loops, ends = _tails(expr, name, _MAX_LOOP_DEPTH)
    if not loops:
        return expr
    return _seq([_repeat(_alt(loops), 0, None), _alt(ends)])


def _tails(expr: _Expr, name: str, depth: int) -> tuple[list[_Expr], list[_Expr]]:
    """(what stands before the rule's own name at the end, the alternatives that end otherwise)."""
    if isinstance(expr, Ref) and expr.name == name:
        return [_EMPTY], []
    if depth and isinstance(expr, _Alt):
        pairs = [_tails(item, name, depth - 1) for item in expr.items]
        return [loop for loops, _ in pairs for loop in loops], [end for _, ends in pairs for end in ends]
    if depth and isinstance(expr, _Seq) and expr.items:
        loops, ends = _tails(expr.items[-1], name, depth - 1)
        if loops:
            before = expr.items[:-1]
            return [_seq([*before, loop]) for loop in loops], [_seq([*before, end]) for end in ends]
    if depth and isinstance(expr, _Repeat) and (expr.low, expr.high) == (0, 1):
        loops, ends = _tails(expr.item, name, depth - 1)
        if loops:
            return loops, [*ends, _EMPTY]
    return [], [expr]


def _flattened(start: str, exprs: dict[str, _Expr]) -> Parts:
    """One part for each place: what is used twice is written twice."""
    parts: list[Part] = []
    rules: dict[str, int] = {}
    for name, body in exprs.items():
        # Entered twice: its parts first, then itself, with the places of its parts on top of `made`.
        waiting: list[tuple[_Expr, bool]] = [(body, False)]
        made: list[int] = []
        while waiting:
            expr, has_parts = waiting.pop()
            inner = _parts(expr)
            if inner and not has_parts:
                waiting.append((expr, True))
                waiting.extend((part, False) for part in reversed(inner))
                continue
            places = tuple(made[len(made) - len(inner) :])
            del made[len(made) - len(inner) :]
            match expr:
                case _Seq():
                    parts.append(Seq(places))
                case _Alt():
                    parts.append(Alt(places))
                case _Repeat():
                    parts.append(Repeat(places[0], expr.low, expr.high))
                case _:
                    parts.append(expr)
            made.append(len(parts) - 1)
        rules[name] = made[0]
    return Parts(start, parts, rules)
