"""The form of a grammar that is exact and quick: whole words and runs where the engine may read them in one
piece.

The engine reads greedily: of all leaves allowed at a place it follows those that can go on, and what could
have ended before is lost. So a leaf must not be able to go on where another one, allowed at the same place,
has just ended and is followed by the same byte. What is looked for here are such pairs:

1. For each leaf, what may follow it (FOLLOW), as a set of leaves. Leaves of the same text at different
   places are different leaves.
2. Which leaves the engine may be looking for at one time: those with which the text may begin; and if two
   that it may look for at one time can be the same text, then all that may follow the one beside all that
   may follow the other.
3. A conflict: two that are looked for at one time, of which one can be complete while the other goes on
   with a byte that may also follow the first. The one that goes on is split: words are cut there, runs
   become single characters.

That is done over again until nothing is in conflict. Then all ways to read a text that are still open have
their borders at the same offsets: by induction over the borders, since at each the engine looks for leaves
of one of the sets of 2, and by 3 none of them goes on over the end of another. So greedy reading loses no
text; and it never adds one, as what is read are leaves in an order that the grammar allows.

Bytes are compared, not characters: the engine cannot tell two characters apart that begin with the same
byte.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from deepinfer_cli.constraints.ebnf.charset import (
    Charset,
    contains,
    first_byte,
    first_bytes,
    meet,
    one,
)
from deepinfer_cli.constraints.ebnf.emit import MAX_SYMBOLS, Headed, Leaf, Part, Parts, Run, Words
from deepinfer_cli.constraints.ebnf.grammar import Alt, Grammar, Ref, Repeat, Seq, moved
from deepinfer_cli.constraints.ebnf.graph import components
from deepinfer_cli.constraints.ebnf.tidy import tidy

MAX_WORK: Final = 600_000  # about a second; a grammar that needs more stays with single characters
_MAX_LEAVES: Final = 10_000
_MAX_CUTTING: Final = 6  # rounds after which words are no longer cut, but spelled

Cuts = dict[str, set[int]]  # of each word: where it is to be cut


class OutOfWork(Exception):
    """The grammar is too large to be merged."""


def merged(grammar: Grammar, max_work: int = MAX_WORK) -> Parts:
    """Raises OutOfWork."""
    work = _Work(max_work)
    parts = tidy(grammar)
    for number in itertools.count():
        work.spend(2 * len(parts.parts))
        conflicts = _Conflicts(parts, work).find()
        if not conflicts:
            break
        parts = _split(parts, conflicts, whole=number >= _MAX_CUTTING)
    return parts


class _Work:
    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise OutOfWork


@dataclass(slots=True, frozen=True)
class _Relation:
    """Of two leaves, each the only one of its kind."""

    can_be_same: bool
    second_goes_on: int  # first bytes with which the second can go on where the first is complete


_UNRELATED = _Relation(False, 0)


class _Group:
    """Leaves that may follow one leaf, and so are looked for together; doubles count once."""

    def __init__(self, leaves: list[int], conflicts: _Conflicts) -> None:
        self.members: dict[tuple[int, int], list[int]] = defaultdict(list)  # (kind, what follows) -> leaves
        for leaf in leaves:
            self.members[conflicts.kind[leaf], conflicts.follow[leaf]].append(leaf)
        self.by_kind: dict[int, list[int]] = defaultdict(list)  # kind -> what follows
        self.kinds = 0
        self.first = 0
        for kind, follow in self.members:
            self.by_kind[kind].append(follow)
            self.kinds |= 1 << kind
            self.first |= conflicts.first_of_kind[kind]


class _Conflicts:
    def __init__(self, parts: Parts, work: _Work) -> None:
        self.work = work
        self.leaves = [i for i, part in enumerate(parts.parts) if isinstance(part, Words | Run | Headed)]
        if len(self.leaves) > _MAX_LEAVES:
            raise OutOfWork
        self.kinds: list[Leaf] = []
        numbers: dict[Leaf, int] = {}
        self.kind: list[int] = []
        for index in self.leaves:
            leaf = parts.parts[index]
            assert isinstance(leaf, Words | Run | Headed)
            if leaf not in numbers:
                numbers[leaf] = len(self.kinds)
                self.kinds.append(leaf)
            self.kind.append(numbers[leaf])
        self.first_of_kind = [_first(kind) for kind in self.kinds]
        self.size_of_kind = [_steps(kind) for kind in self.kinds]
        start, follows = _what_follows(parts, self.leaves, work)
        # Leaves that are followed by the same ones are followed by the same group.
        self.group_numbers: dict[int, int] = {start: 0}
        self.follow = [self.group_numbers.setdefault(bits, len(self.group_numbers)) for bits in follows]
        self.group_bits = list(self.group_numbers)
        self.groups: dict[int, _Group] = {}
        self.relations: dict[tuple[int, int], _Relation] = {}
        self.related_kinds: dict[int, int] = {}

    def find(self) -> dict[int, Cuts | None]:
        """Parts to split; of words, which of them and where."""
        found: dict[int, Cuts | None] = {}
        seen = {(0, 0)}
        waiting = [(0, 0)]
        while waiting:
            pair = waiting.pop()
            a, b = self.group(pair[0]), self.group(pair[1])
            self.work.spend(1 + len(a.members))
            for kind, follows in a.by_kind.items():
                for other in _bits(self.related(kind) & b.kinds):
                    others = b.by_kind[other]
                    self.work.spend(len(follows) * len(others))
                    self._compare((kind, follows), (other, others), b, found)
                    self._compare((other, others), (kind, follows), a, found)
                    if not self.relation(kind, other).can_be_same:
                        continue
                    for x in follows:
                        for y in others:
                            following = (x, y) if x <= y else (y, x)
                            if following not in seen:
                                seen.add(following)
                                waiting.append(following)
        return found

    def _compare(
        self,
        ended: tuple[int, list[int]],
        going_on: tuple[int, list[int]],
        group: _Group,
        found: dict[int, Cuts | None],
    ) -> None:
        """Notes the leaves of `group` that go on where `ended` is lost."""
        goes_on = self.relation(ended[0], going_on[0]).second_goes_on
        if not goes_on:
            return
        lost = 0
        for follow in ended[1]:
            lost |= self.group(follow).first
        if not goes_on & lost:
            return
        kind = self.kinds[going_on[0]]
        cuts = _cuts(self.kinds[ended[0]], kind, lost) if isinstance(kind, Words) else None
        for follow in going_on[1]:
            for leaf in group.members[going_on[0], follow]:
                index = self.leaves[leaf]
                if cuts is None:
                    found[index] = None
                    continue
                known = found.setdefault(index, {})
                assert known is not None
                for word, places in cuts.items():
                    known.setdefault(word, set()).update(places)

    def group(self, number: int) -> _Group:
        known = self.groups.get(number)
        if known is None:
            leaves = list(_bits(self.group_bits[number]))
            self.work.spend(len(leaves))
            known = self.groups[number] = _Group(leaves, self)
        return known

    def related(self, kind: int) -> int:
        """Kinds that can be the same text as this one, or go on where it ends, or the other way round."""
        known = self.related_kinds.get(kind)
        if known is None:
            known = 0
            first = self.first_of_kind[kind]
            self.work.spend(len(self.kinds) // 4)
            for other, other_first in enumerate(self.first_of_kind):
                if first & other_first:
                    there, back = self.relation(kind, other), self.relation(other, kind)
                    if there.can_be_same or there.second_goes_on or back.second_goes_on:
                        known |= 1 << other
            self.related_kinds[kind] = known
        return known

    def relation(self, first: int, second: int) -> _Relation:
        known = self.relations.get((first, second))
        if known is None:
            a, b = self.kinds[first], self.kinds[second]
            sizes = self.size_of_kind[first], self.size_of_kind[second]
            is_of_words = isinstance(a, Words) or isinstance(b, Words)
            self.work.spend(1 + (sum(sizes) if is_of_words else min(sizes)))
            known = self.relations[first, second] = _relation(a, b)
        return known


def _bits(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _steps(leaf: Leaf) -> int:
    """What it costs to compare the leaf with another, roughly."""
    if isinstance(leaf, Words):
        return len(leaf.words) + sum(map(len, leaf.words)) // 8
    shape = _shape(leaf)
    return (len(shape.first) + len(shape.rest)) // 2


def _first(leaf: Leaf) -> int:
    if not isinstance(leaf, Words):
        return first_bytes(_shape(leaf).first)
    bits = 0
    for word in leaf.words:
        bits |= first_byte(word[0])
    return bits


@dataclass(slots=True, frozen=True)
class _Shape:
    """A run: its first character, the others, and how many there are together."""

    first: Charset
    rest: Charset
    low: int
    high: int | None

    def can_have(self, length: int) -> bool:
        return self.low <= length and (self.high is None or length <= self.high)

    def goes_on_after(self, length: int) -> bool:
        return self.high is None or length < self.high

    def covered(self, word: str) -> int:
        """How many characters at the beginning of the word are of its sets."""
        for number, char in enumerate(word):
            if not contains(self.rest if number else self.first, char):
                return number
        return len(word)


def _shape(leaf: Run | Headed) -> _Shape:
    if isinstance(leaf, Run):
        return _Shape(leaf.chars, leaf.chars, leaf.low, leaf.high)
    return _Shape(leaf.first, leaf.chars, 1 + leaf.low, None if leaf.high is None else 1 + leaf.high)


def _relation(a: Leaf, b: Leaf) -> _Relation:
    if not isinstance(b, Words):
        run = _shape(b)
        if not isinstance(a, Words):
            return _relation_of_runs(_shape(a), run)
        lengths = [len(word) for word in a.words if run.covered(word) == len(word)]
        same = any(map(run.can_have, lengths))
        goes_on = any(map(run.goes_on_after, lengths))
        return _Relation(same, first_bytes(run.rest) if goes_on else 0)
    if isinstance(a, Words):
        same = not frozenset(a.words).isdisjoint(b.words)
    else:
        run = _shape(a)
        same = any(run.can_have(len(word)) and run.covered(word) == len(word) for word in b.words)
    bits = 0
    for _, _, byte in _ends_inside(a, b):
        bits |= byte
    return _Relation(same, bits)


def _relation_of_runs(a: _Shape, b: _Shape) -> _Relation:
    if not meet(a.first, b.first):
        return _UNRELATED
    # Texts of one character are there, or there are none; of more, if both can go on alike.
    longest = None if meet(a.rest, b.rest) else 1
    fits = (high for high in (a.high, b.high, longest) if high is not None)
    same = max(a.low, b.low) <= min(fits, default=a.low + b.low)
    goes_on = b.goes_on_after(a.low) and (longest is None or a.low <= longest)
    return _Relation(same, first_bytes(b.rest) if goes_on else 0)


def _ends_inside(a: Leaf, b: Words) -> Iterator[tuple[str, int, int]]:
    """Words in which `a` can end before their last character, where, and the byte that comes then."""
    if not isinstance(a, Words):
        run = _shape(a)
        for word in b.words:
            covered = run.covered(word)
            for at in range(run.low, min(covered, len(word) - 1, run.high or len(word)) + 1):
                yield word, at, first_byte(word[at])
        return
    known = frozenset(a.words)
    lengths = sorted({len(word) for word in known})
    for word in b.words:
        for length in lengths:
            if length >= len(word):
                break
            if word[:length] in known:
                yield word, length, first_byte(word[length])


def _cuts(a: Leaf, b: Words, lost: int) -> Cuts:
    cuts: Cuts = {}
    for word, at, byte in _ends_inside(a, b):
        if byte & lost:
            cuts.setdefault(word, set()).add(at)
    return cuts


def _what_follows(parts: Parts, leaves: Sequence[int], work: _Work) -> tuple[int, list[int]]:
    """The leaves with which the text begins, and for each leaf those that may follow it; bits are leaves.

    Of each part there are two sets, what it begins with and what follows it; each contains others, and sets
    that contain each other are the same set.
    """
    num_parts = len(parts.parts)
    holds: list[list[int]] = [[] for _ in range(2 * num_parts)]
    empty = _can_be_empty(parts)
    for index, part in enumerate(parts.parts):
        after = num_parts + index
        match part:
            case Ref():
                body = parts.rules[part.name]
                holds[index].append(body)
                holds[num_parts + body].append(after)
            case Alt():
                holds[index].extend(part.items)
                for item in part.items:
                    holds[num_parts + item].append(after)
            case Repeat():
                holds[index].append(part.item)
                holds[num_parts + part.item].append(after)
                if part.high != 1:
                    holds[num_parts + part.item].append(part.item)
            case Seq():
                for item in part.items:
                    holds[index].append(item)
                    if not empty[item]:
                        break
                for item, following in zip(part.items, part.items[1:], strict=False):
                    holds[num_parts + item].append(following)
                    if empty[following]:
                        holds[num_parts + item].append(num_parts + following)
                if part.items:
                    holds[num_parts + part.items[-1]].append(after)
    sets = [0] * (2 * num_parts)
    for number, leaf in enumerate(leaves):
        sets[leaf] = 1 << number
    cost = 1 + len(leaves) // 20_000
    for component in components(holds):
        bits = 0
        for member in component:
            bits |= sets[member]
            for other in holds[member]:
                bits |= sets[other]
                work.spend(cost)
        for member in component:
            sets[member] = bits
    return sets[parts.rules[parts.start]], [sets[num_parts + leaf] for leaf in leaves]


def _can_be_empty(parts: Parts) -> list[bool]:
    empty = [False] * len(parts.parts)
    changed = True
    while changed:
        changed = False
        for index, part in enumerate(parts.parts):
            if empty[index]:
                continue
            match part:
                case Ref():
                    now = empty[parts.rules[part.name]]
                case Seq():
                    now = all(empty[item] for item in part.items)
                case Alt():
                    now = any(empty[item] for item in part.items)
                case Repeat():
                    now = part.low == 0 or empty[part.item]
                case _:
                    now = False
            if now:
                empty[index] = changed = True
    return empty


def _split(parts: Parts, conflicts: dict[int, Cuts | None], whole: bool) -> Parts:
    """Words are cut where another leaf can end, `whole` ones into characters; runs always are."""
    made: list[Part] = []
    new_index: list[int] = []

    def add(part: Part) -> int:
        made.append(part)
        return len(made) - 1

    def cut(word: str, places: set[int]) -> int:
        if len(made) > MAX_SYMBOLS:
            raise OutOfWork
        ends = range(1, len(word) + 1) if whole else [*sorted(places), len(word)]
        pieces = [word[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return add(Seq(tuple(add(Run(one(text)) if len(text) == 1 else Words((text,))) for text in pieces)))

    for index, part in enumerate(parts.parts):
        match part:
            case Run() if index in conflicts:
                single = add(Run(part.chars))
                new_index.append(add(Repeat(single, part.low, part.high)))
            case Headed() if index in conflicts:
                head, rest = add(Run(part.first)), add(Run(part.chars, part.low or 1, part.high))
                if not part.low:
                    rest = add(Repeat(rest, 0, 1))
                new_index.append(add(Seq((head, rest))))
            case Words() if index in conflicts:
                bad = conflicts[index] or {}
                kept = tuple(word for word in part.words if word not in bad)
                choices = [add(Words(kept))] if kept else []
                choices += [cut(word, bad[word]) for word in part.words if word in bad]
                new_index.append(choices[0] if len(choices) == 1 else add(Alt(tuple(choices))))
            case Run() | Headed() | Words():
                new_index.append(add(part))
            case _:
                new_index.append(add(moved(part, new_index)))
    return Parts(parts.start, made, {name: new_index[body] for name, body in parts.rules.items()})
