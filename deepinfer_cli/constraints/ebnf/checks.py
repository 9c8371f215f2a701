"""What a grammar must be before it is run: every rule defined, every rule able to end."""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_cli.constraints.ebnf.charset import Charset, difference, one, union
from deepinfer_cli.constraints.ebnf.grammar import (
    MAX_COUNTS,
    Alt,
    Chars,
    Grammar,
    Minus,
    Ref,
    Repeat,
    Rule,
    Seq,
    Text,
    children,
    moved,
    shown,
)
from deepinfer_cli.constraints.types import ConstraintError


def check(grammar: Grammar) -> Grammar:
    """The same grammar, with only the rules that the start can reach and no `Minus` left."""
    _check_defined(grammar)
    _check_counts(grammar)
    _resolve_minus(grammar)
    _leave_out_unreached(grammar)
    _check_ends(grammar)
    return grammar


def _check_defined(grammar: Grammar) -> None:
    for node in grammar.nodes:
        if isinstance(node, Ref) and node.name not in grammar.rules:
            hint = _near(node.name, grammar)
            grammar.source.refuse(node.at, f"the rule {shown(node.name)} is not defined{hint}")


def _check_counts(grammar: Grammar) -> None:
    """Refuses counts in counts in counts, of which neither the engine nor a text sees the end."""
    products: list[int] = []
    for node in grammar.nodes:
        product = max((products[part] for part in children(node)), default=1)
        if isinstance(node, Repeat):
            product *= max(node.low, node.high or 1)
        if product > MAX_COUNTS:
            raise ConstraintError(
                "unsupported_schema", f"counts within counts multiply to more than {MAX_COUNTS:,}"
            )
        products.append(product)


def _near(name: str, grammar: Grammar) -> str:
    same = [rule for rule in grammar.rules if rule.lower() == name.lower()]
    if same:
        return f"; is {shown(same[0])} meant?"
    if " " in name and all(word in grammar.rules for word in name.split()):
        return "; a ',' is missing between its words"
    if "-" in name and all(word in grammar.rules for word in name.split("-")):
        return "; an exception is written with spaces: A - B"
    return ""


def _resolve_minus(grammar: Grammar) -> None:
    minuses = [i for i, node in enumerate(grammar.nodes) if isinstance(node, Minus)]
    if not minuses:
        return
    sets = _Sets(grammar)
    for index in minuses:
        node = grammar.nodes[index]
        assert isinstance(node, Minus)
        left, right = sets.of(node.item), sets.of(node.without)
        if left is None or right is None:
            grammar.source.refuse(
                node.at, "'A - B' is enforced only where A and B are single characters", "unsupported_schema"
            )
        if not difference(left, right):
            grammar.source.refuse(node.at, "no character is left of this 'A - B'")
    for index in minuses:
        chars = sets.of(index)
        assert chars is not None
        grammar.nodes[index] = Chars(chars)


class _Sets:
    """Which characters a node stands for; None when it is more than single characters."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.known: dict[int, Charset | None] = {}

    def of(self, index: int) -> Charset | None:
        waiting = [index]
        opened: set[int] = set()  # nodes whose parts are being looked at: meeting one again is a circle
        while waiting:
            top = waiting[-1]
            if top in self.known:
                waiting.pop()
                continue
            needed = self._needs(top)
            missing = [part for part in needed if part not in self.known]
            if not missing or top in opened:
                self.known[top] = None if missing else self._combine(top, needed)
                waiting.pop()
                continue
            opened.add(top)
            circular = any(part in opened for part in missing)
            if circular:
                self.known[top] = None
                waiting.pop()
            else:
                waiting.extend(missing)
        return self.known[index]

    def _needs(self, index: int) -> Sequence[int]:
        node = self.grammar.nodes[index]
        if isinstance(node, Ref):
            return (self.grammar.rules[node.name].body,)
        return children(node) if isinstance(node, (Alt, Minus)) else ()

    def _combine(self, index: int, parts: Sequence[int]) -> Charset | None:
        node = self.grammar.nodes[index]
        if isinstance(node, Chars):
            return node.chars
        if isinstance(node, Text):
            return one(node.text) if len(node.text) == 1 else None
        sets = [chars for part in parts if (chars := self.known[part]) is not None]
        if not sets or len(sets) < len(parts):
            return None
        if isinstance(node, Minus):
            return difference(sets[0], sets[1]) or None
        return union(sets)


def _leave_out_unreached(grammar: Grammar) -> None:
    reached = {grammar.rules[grammar.start].body}
    names = {grammar.start}
    waiting = list(reached)
    while waiting:
        node = grammar.nodes[waiting.pop()]
        parts: Sequence[int] = children(node)
        if isinstance(node, Ref):
            names.add(node.name)
            parts = (grammar.rules[node.name].body,)
        fresh = [part for part in parts if part not in reached]
        reached.update(fresh)
        waiting.extend(fresh)
    old, grammar.nodes = grammar.nodes, []
    new_index: dict[int, int] = {}
    for index in sorted(reached):
        node = old[index]
        new_index[index] = len(grammar.nodes)
        grammar.nodes.append(moved(node, new_index) if isinstance(node, Ref | Seq | Alt | Repeat) else node)
    grammar.rules = {
        name: Rule(name, new_index[rule.body], rule.at)
        for name, rule in grammar.rules.items()
        if name in names
    }


def derives(grammar: Grammar, leaves: bool) -> list[bool]:
    """For each node: can it derive a text of such parts? With `leaves`, any text; without, the empty one.

    Each node waits for those of its parts that it needs; rules that wait for each other never come out.
    """
    nodes = grammar.nodes
    waits: list[list[int]] = [[] for _ in nodes]  # who waits for a node
    of_rule: dict[str, list[int]] = {name: [] for name in grammar.rules}
    num_needed = [0] * len(nodes)
    done: list[int] = []
    for index, node in enumerate(nodes):
        match node:
            case Ref():
                of_rule.setdefault(node.name, []).append(index)
                num_needed[index] = 1
            case Alt():
                num_needed[index] = 1
            case Seq():
                num_needed[index] = len(node.items)
            case Repeat():
                num_needed[index] = 1 if node.low else 0
            case _:
                num_needed[index] = 0 if leaves else 1
        for part in children(node):
            waits[part].append(index)
        if not num_needed[index]:
            done.append(index)
    names: dict[int, list[str]] = {}
    for name, rule in grammar.rules.items():
        names.setdefault(rule.body, []).append(name)
    while done:
        index = done.pop()
        waiting = waits[index]
        for name in names.get(index, ()):
            waiting = waiting + of_rule[name]
        for other in waiting:
            num_needed[other] -= 1
            if num_needed[other] == 0:
                done.append(other)
    return [needed <= 0 for needed in num_needed]


def _check_ends(grammar: Grammar) -> None:
    """Refuses a rule that no text can end. With it a text could be begun that is never right."""
    ends = derives(grammar, leaves=True)
    endless = [rule for rule in grammar.rules.values() if not ends[rule.body]]
    if endless:
        rule = min(endless, key=lambda rule: (rule.name != grammar.start, rule.at))
        what = "the start rule" if rule.name == grammar.start else "the rule"
        grammar.source.refuse(rule.at, f"{what} {shown(rule.name)} never finishes: no text can end it")
