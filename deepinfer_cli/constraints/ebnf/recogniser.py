"""Is a text of a grammar's language? Decided character by character, by other code than the engine's.

Earley's algorithm over one automaton a rule. The automata are made deterministic where the text leads, so
that inside of a rule a character costs one step; the memory of a text grows with its length. Right recursion
is followed at once to its end (Leo's improvement), left recursion costs nothing special.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from deepinfer_cli.constraints.ebnf.charset import Charset, contains, one
from deepinfer_cli.constraints.ebnf.checks import derives
from deepinfer_cli.constraints.ebnf.grammar import (
    Alt,
    Chars,
    Grammar,
    Minus,
    Ref,
    Repeat,
    Seq,
    Text,
    children,
)

MAX_STEPS: Final = 3_000_000  # some seconds
_STATE_STEPS: Final = 10  # what a new state costs, mostly in memory
_PLACE_STEPS: Final = 2
_MAX_COPIED: Final = 64  # a larger repetition calls its body instead of copying it
_MAX_KEPT: Final = 100_000  # places and states that one text may leave for the next
_ACCEPT: Final = -1  # what waits for the start rule
_DEAD: Final = -1

Item = tuple[int, int]  # a state, and where in the text its rule began


class StepLimit(TimeoutError):
    """The text needs more steps than are allowed; nothing is known about it."""


@dataclass(slots=True)
class _State:
    """A set of places in one rule, all reached by the same text."""

    owner: int
    places: frozenset[int]
    ends: bool  # the rule may end here
    calls: tuple[int, ...]  # rules that may begin here
    is_last: bool  # it ends here and goes on with nothing
    by_char: dict[str, int] = field(default_factory=dict)
    by_rule: dict[int, int] = field(default_factory=dict)


class Recogniser:
    """Of one checked grammar; keeps what it has learned from one text for the next."""

    def __init__(self, grammar: Grammar, max_steps: int = MAX_STEPS) -> None:
        self.grammar = grammar
        self.max_steps = max_steps
        self._empty = derives(grammar, leaves=False)
        self._sizes: list[int] = []
        for node in grammar.nodes:
            own = len(node.text) if isinstance(node, Text) else 1
            self._sizes.append(own + sum(self._sizes[part] for part in children(node)))
        self._forget()

    def _forget(self) -> None:
        self.steps = 0
        self._skips: list[Sequence[int]] = []  # of each place: places reached by nothing
        self._chars: list[tuple[Charset, int] | None] = []
        self._calls: list[Sequence[tuple[int, int]]] = []
        self._states: list[_State] = []
        self._known: dict[tuple[int, frozenset[int]], int] = {}
        self._starts: dict[int, int] = {}  # rules are called by the node of their body
        self._final: dict[int, int] = {}  # the place at which each rule ends

    def matches(self, text: str) -> bool:
        """Raises StepLimit when it takes too long."""
        self.steps = 0
        if len(self._states) + len(self._skips) > _MAX_KEPT:
            self._forget()
        waiting: list[dict[int, list[Item]]] = []  # at each offset: who called which rule
        shortcuts: list[dict[int, tuple[int, int]]] = []
        items: list[Item] = [(self._start(_ACCEPT), 0)]
        for at in range(len(text) + 1):
            waiting.append({})
            shortcuts.append({})
            accepted = self._expand(at, items, waiting, shortcuts)
            if at == len(text):
                return accepted or (at == 0 and self._empty[self.grammar.rules[self.grammar.start].body])
            char, states, following = text[at], self._states, []
            for state, origin in items:
                target = states[state].by_char.get(char)
                if target is None:
                    target = self._step(state, char)
                if target != _DEAD:
                    following.append((target, origin))
            if not following:
                return False
            items = following
        return False

    def _expand(
        self,
        at: int,
        items: list[Item],
        waiting: list[dict[int, list[Item]]],
        shortcuts: list[dict[int, tuple[int, int]]],
    ) -> bool:
        """Adds the rules called here and those that end here; True when the whole text may end here."""
        states, seen, ended, here = self._states, set(items), set(), waiting[at]
        accepted = False
        for item in items:  # grows while it is read
            self.steps += 1
            if self.steps > self.max_steps:
                raise StepLimit(f"more than {self.max_steps:,} steps")
            state = states[item[0]]
            for rule in state.calls:
                callers = here.get(rule)
                if callers is None:
                    here[rule] = [item]
                    items.append((self._start(rule), at))
                else:
                    callers.append(item)
            if not state.ends or item[1] == at:
                continue
            rule, origin = self._follow(state.owner, item[1], waiting, shortcuts)
            if (rule, origin) in ended:
                continue
            ended.add((rule, origin))
            accepted = accepted or rule == _ACCEPT
            for caller, began in waiting[origin].get(rule, ()):
                self.steps += 1
                reached = (self._after(caller, rule), began)
                if reached not in seen:
                    seen.add(reached)
                    items.append(reached)
        return accepted

    def _follow(
        self,
        rule: int,
        origin: int,
        waiting: list[dict[int, list[Item]]],
        shortcuts: list[dict[int, tuple[int, int]]],
    ) -> tuple[int, int]:
        """While only one caller waits, and ends with this call: that caller instead."""
        passed = []
        while True:
            known = shortcuts[origin].get(rule)
            if known is not None:
                rule, origin = known
                break
            callers = waiting[origin].get(rule, ())
            if len(callers) != 1:
                break
            caller, began = callers[0]
            reached = self._states[self._after(caller, rule)]
            if not reached.is_last:
                break
            passed.append((rule, origin))
            self.steps += 1
            rule, origin = reached.owner, began
        for old_rule, old_origin in passed:
            shortcuts[old_origin][old_rule] = (rule, origin)
        return rule, origin

    def _start(self, rule: int) -> int:
        known = self._starts.get(rule)
        if known is None:
            first = self._place()
            last = self._place()
            self._final[rule] = last
            self._connect(rule, first, last)
            known = self._starts[rule] = self._state(rule, [first])
        return known

    def _step(self, index: int, char: str) -> int:
        state = self._states[index]
        found = []
        for place in state.places:
            edge = self._chars[place]
            if edge is not None and contains(edge[0], char):
                found.append(edge[1])
        self.steps += len(state.places)
        target = self._state(state.owner, found) if found else _DEAD
        state.by_char[char] = target
        return target

    def _after(self, index: int, rule: int) -> int:
        state = self._states[index]
        known = state.by_rule.get(rule)
        if known is None:
            found = [
                target for place in state.places for called, target in self._calls[place] if called == rule
            ]
            self.steps += len(state.places)
            known = state.by_rule[rule] = self._state(state.owner, found)
        return known

    def _state(self, owner: int, places: list[int]) -> int:
        """The state of these places and all that are reached from them by nothing."""
        reached = set(places)
        todo = list(reached)
        while todo:
            place = todo.pop()
            for target in self._skips[place]:
                if target not in reached:
                    reached.add(target)
                    todo.append(target)
        key = (owner, frozenset(reached))
        known = self._known.get(key)
        if known is not None:
            return known
        self._spend(_STATE_STEPS + len(reached))
        calls = tuple(dict.fromkeys(rule for place in reached for rule, _ in self._calls[place]))
        ends = self._final[owner] in reached
        goes_on = bool(calls) or any(self._chars[place] is not None for place in reached)
        self._states.append(_State(owner, key[1], ends, calls, ends and not goes_on))
        self._known[key] = len(self._states) - 1
        return self._known[key]

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self.max_steps:
            raise StepLimit(f"more than {self.max_steps:,} steps")

    def _place(self) -> int:
        self._spend(_PLACE_STEPS)
        self._skips.append(())
        self._chars.append(None)
        self._calls.append(())
        return len(self._skips) - 1

    def _skip(self, start: int, end: int) -> None:
        known = self._skips[start]
        if isinstance(known, list):
            known.append(end)
        else:
            self._skips[start] = [*known, end]

    def _call(self, body: int, start: int, end: int) -> None:
        self._calls[start] = (*self._calls[start], (body, end))
        if self._empty[body]:
            self._skip(start, end)

    def _connect(self, rule: int, start: int, end: int) -> None:
        """What a rule says, between two places. Open parts are a list, not calls."""
        if rule == _ACCEPT:
            self._call(self.grammar.rules[self.grammar.start].body, start, end)
            return
        todo = [(rule, start, end)]
        while todo:
            index, start, end = todo.pop()
            node = self.grammar.nodes[index]
            match node:
                case Text():
                    self._words([node.text], start, end)
                case Chars():
                    self._edge(node.chars, start, end)
                case Ref():
                    self._call(self.grammar.rules[node.name].body, start, end)
                case Seq():
                    for part in node.items[:-1]:
                        following = self._place()
                        todo.append((part, start, following))
                        start = following
                    if node.items:
                        todo.append((node.items[-1], start, end))
                    else:
                        self._skip(start, end)
                case Alt():
                    words = []
                    for part in node.items:
                        choice = self.grammar.nodes[part]
                        if isinstance(choice, Text):
                            words.append(choice.text)
                        else:
                            todo.append((part, start, end))
                    self._words(words, start, end)
                case Repeat():
                    self._repeat(node, start, end, todo)
                case Minus():
                    raise AssertionError("not a checked grammar")

    def _words(self, words: Sequence[str], start: int, end: int) -> None:
        """Alternatives that begin alike share their first places."""
        known: dict[tuple[int, str], int] = {}
        for word in words:
            place = start
            for char in word:
                target = known.get((place, char))
                if target is None:
                    target = known[place, char] = self._edge(one(char), place, self._place())
                place = target
            self._skip(place, end)

    def _edge(self, chars: Charset, start: int, end: int) -> int:
        """A place has one edge of characters at most: others begin behind a skip."""
        if self._chars[start] is not None:
            fresh = self._place()
            self._skip(start, fresh)
            start = fresh
        self._chars[start] = (chars, end)
        return end

    def _repeat(self, node: Repeat, start: int, end: int, todo: list[tuple[int, int, int]]) -> None:
        num_copies = node.low + 1 if node.high is None else node.high
        is_called = num_copies > 1 and self._sizes[node.item] * num_copies > _MAX_COPIED

        def part(begin: int, target: int) -> None:
            if is_called and self._sizes[node.item] > 1:
                self._call(node.item, begin, target)
            else:
                todo.append((node.item, begin, target))

        for _ in range(node.low):
            following = self._place()
            part(start, following)
            start = following
        if node.high is None:
            loop = self._place()
            self._skip(start, loop)
            part(loop, loop)
            self._skip(loop, end)
            return
        for _ in range(node.high - node.low):
            self._skip(start, end)
            following = self._place()
            part(start, following)
            start = following
        self._skip(start, end)
