"""Small negative look-aheads as plain patterns: every text that does not begin with a match.

The engine's patterns in schemas have no negation. A look-ahead of a few states is turned into an automaton,
that is completed and reversed in what it accepts, and written as a pattern again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from re import _constants as op  # type: ignore[attr-defined]
from typing import Any, Final

from deepinfer_cli.constraints import charset

_MAX_NFA_STATES: Final = 80
_MAX_STATES: Final = 24
_MAX_CHARS: Final = 20_000
_ALL: Final[charset.Ranges] = [(0, charset.MAX_CODE_POINT)]
_LINE_END: Final[charset.Ranges] = [(0x0A, 0x0A)]

Item = tuple[Any, Any]


class TooLarge(Exception):
    """Or not of the kind that can be turned round."""


class _Nfa:
    """State 0 is reached where a match has ended and anything may follow, state 1 where the text must end."""

    def __init__(self) -> None:
        self.edges: list[list[tuple[charset.Ranges, int]]] = [[(_ALL, 0)], []]
        self.free: list[list[int]] = [[], []]

    def state(self) -> int:
        if len(self.edges) >= _MAX_NFA_STATES:
            raise TooLarge
        self.edges.append([])
        self.free.append([])
        return len(self.edges) - 1

    def sequence(self, items: Sequence[Item], flags: int, start: int, *, at_start: bool, at_end: bool) -> int:
        for i, (code, argument) in enumerate(items):
            is_last = at_end and i == len(items) - 1
            is_first = at_start and i == 0
            if code is op.AT:
                start = self._anchor(argument, start, is_first=is_first, is_last=is_last)
            elif code is op.BRANCH:
                end = self.state()
                for part in argument[1]:
                    self.free[self.sequence(part, flags, start, at_start=is_first, at_end=is_last)].append(
                        end
                    )
                start = end
            elif code is op.SUBPATTERN:
                _, add, remove, inner = argument
                start = self.sequence(
                    inner, (flags | add) & ~remove, start, at_start=is_first, at_end=is_last
                )
            elif code in (op.MAX_REPEAT, op.MIN_REPEAT):
                start = self._repeat(argument, flags, start)
            else:
                end = self.state()
                self.edges[start].append((_members(code, argument, flags), end))
                start = end
        return start

    def _anchor(self, kind: Any, start: int, *, is_first: bool, is_last: bool) -> int:
        if kind in (op.AT_BEGINNING, op.AT_BEGINNING_STRING) and is_first:
            return start
        if kind not in (op.AT_END, op.AT_END_STRING) or not is_last:
            raise TooLarge
        self.free[start].append(1)
        if kind is op.AT_END:  # Python's `$` lets one line end follow, ECMA-262's does not
            self.edges[start].append((_LINE_END, 1))
        return self.state()  # reached by nothing

    def _repeat(self, argument: Any, flags: int, start: int) -> int:
        low, high, inner = argument
        for _ in range(low):
            start = self.sequence(inner, flags, start, at_start=False, at_end=False)
        end = self.state()
        self.free[start].append(end)
        if high is op.MAXREPEAT:
            again = self.state()
            self.free[start].append(again)
            back = self.sequence(inner, flags, again, at_start=False, at_end=False)
            self.free[back] += [again, end]
            return end
        for _ in range(high - low):
            start = self.sequence(inner, flags, start, at_start=False, at_end=False)
            self.free[start].append(end)
        return end

    def closed(self, states: set[int]) -> frozenset[int]:
        found, stack = set(states), list(states)
        while stack:
            for target in self.free[stack.pop()]:
                if target not in found:
                    found.add(target)
                    stack.append(target)
        return frozenset(found)


def _members(code: Any, argument: Any, flags: int) -> charset.Ranges:
    if code is op.ANY:
        return _ALL if flags & re.DOTALL else charset.complement(_LINE_END)
    negated = code is op.NOT_LITERAL
    members = [(op.LITERAL, argument)] if code in (op.LITERAL, op.NOT_LITERAL) else argument
    if code is op.IN:
        negated = argument[0][0] is op.NEGATE
    elif code not in (op.LITERAL, op.NOT_LITERAL):
        raise TooLarge
    ranges: charset.Ranges = []
    for kind, value in members:
        if kind is op.LITERAL:
            ranges.append((value, value))
        elif kind is op.RANGE:
            ranges.append(value)
        elif kind is not op.NEGATE:
            raise TooLarge  # \d, \w and \s mean one thing here and another there
    if flags & re.IGNORECASE:
        ranges = charset.ignoring_case(ranges, ascii_only=bool(flags & re.ASCII))
    ranges = charset.union(ranges)
    return charset.complement(ranges) if negated else ranges


def others(items: Sequence[Item], flags: int) -> str:
    """Pattern of the whole texts that `(?!items)` lets through at their start. Raises TooLarge."""
    nfa = _Nfa()
    start = nfa.state()
    end = nfa.sequence(items, flags, start, at_start=True, at_end=True)
    nfa.free[end].append(0)
    return _as_pattern(*_automaton(nfa, start))


def _automaton(nfa: _Nfa, start: int) -> tuple[list[dict[int, charset.Ranges]], list[bool]]:
    """(target -> characters of each state, may a text end there) of the texts that are let through."""
    bounds = {0, charset.MAX_CODE_POINT + 1}
    for edges in nfa.edges:
        for ranges, _ in edges:
            bounds |= {edge for low, high in ranges for edge in (low, high + 1)}
    ordered = sorted(bounds)
    atoms = list(zip(ordered, (bound - 1 for bound in ordered[1:]), strict=False))
    first = nfa.closed({start})
    numbers = {first: 0}
    table: list[dict[int, charset.Ranges]] = []
    may_end: list[bool] = []
    queue = [first]
    for states in queue:
        targets: dict[int, charset.Ranges] = {}
        for low, high in [] if 0 in states else atoms:
            found = nfa.closed(
                {
                    target
                    for state in states
                    for ranges, target in nfa.edges[state]
                    if any(a <= low and high <= b for a, b in ranges)
                }
            )
            if 0 in found:
                continue  # a match: nothing that follows makes up for it
            if found not in numbers:
                if len(numbers) >= _MAX_STATES:
                    raise TooLarge
                numbers[found] = len(numbers)
                queue.append(found)
            targets[numbers[found]] = charset.union(targets.get(numbers[found], []), [(low, high)])
        table.append(targets)
        may_end.append(not states & {0, 1})
    return table, may_end


def _as_pattern(table: list[dict[int, charset.Ranges]], may_end: list[bool]) -> str:
    """By taking one state after the other away."""
    last = len(table)
    paths: dict[tuple[int, int], str] = {}
    for state, targets in enumerate(table):
        for target, ranges in targets.items():
            paths[state, target] = "(?s:.)" if ranges == _ALL else f"[{charset.spelled(ranges)}]"
        if may_end[state]:
            paths[state, last] = ""
    for gone in range(last - 1, 0, -1):
        loop = paths.pop((gone, gone), None)
        again = "" if loop is None else f"(?:{loop})*"
        into = [(a, text) for (a, b), text in paths.items() if b == gone]
        out = [(b, text) for (a, b), text in paths.items() if a == gone]
        paths = {pair: text for pair, text in paths.items() if gone not in pair}
        for a, before in into:
            for b, after in out:
                way = f"(?:{before}){again}(?:{after})"
                paths[a, b] = f"{paths[a, b]}|{way}" if (a, b) in paths else way
                if len(paths[a, b]) > _MAX_CHARS:
                    raise TooLarge
    if (0, last) not in paths:
        raise TooLarge  # no text at all
    loop = paths.get((0, 0))
    return (f"(?:{loop})*" if loop is not None else "") + f"(?:{paths[0, last]})"
