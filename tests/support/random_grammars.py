"""Small random grammars, in GBNF, over few characters: every short text of them can be tried."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

# The characters of the last begin with the same byte, or are not told apart before the third.
ALPHABETS = (("ab", 6), ("abc", 4), ("aéè", 4), ("日旦a", 4), ("aA0", 4))
_MARKS = ("*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}", "{0,1}", "{1,}")
_NAMES = ("root", "x", "y", "z")


@dataclass(frozen=True)
class RandomGrammar:
    text: str
    alphabet: str
    max_chars: int

    def texts(self) -> Iterator[str]:
        """All up to a length."""
        for length in range(self.max_chars + 1):
            for chars in itertools.product(self.alphabet, repeat=length):
                yield "".join(chars)


def random_grammar(rng: random.Random) -> RandomGrammar:
    """May be one that is refused: a rule that never ends."""
    alphabet, max_chars = rng.choice(ALPHABETS)
    names = _NAMES[: rng.choice((1, 1, 2, 2, 3, 4))]
    maker = _Maker(rng, alphabet, names)
    return RandomGrammar("".join(f"{name} ::= {maker.choice(3)}\n" for name in names), alphabet, max_chars)


class _Maker:
    def __init__(self, rng: random.Random, alphabet: str, names: tuple[str, ...]) -> None:
        self.rng = rng
        self.alphabet = alphabet
        self.names = names

    def choice(self, depth: int) -> str:
        return " | ".join(self.sequence(depth) for _ in range(self.rng.choice((1, 1, 2, 2, 3))))

    def sequence(self, depth: int) -> str:
        count = self.rng.choice((0, 1, 1, 2, 2, 3, 4)) if depth < 3 else self.rng.choice((1, 2, 2, 3, 4))
        return " ".join(self.item(depth) for _ in range(count))

    def item(self, depth: int) -> str:
        rng = self.rng
        kind = rng.random()
        if kind < 0.35:
            made = '"' + "".join(rng.choices(self.alphabet, k=rng.choice((1, 1, 2, 2, 3)))) + '"'
        elif kind < 0.6:
            chars = rng.sample(self.alphabet, rng.randint(1, len(self.alphabet) - 1))
            made = f"[{'^' if rng.random() < 0.2 else ''}{''.join(chars)}]"
        elif kind < 0.75 or depth == 0:
            made = rng.choice(self.names)
        else:
            made = f"({self.choice(depth - 1)})"
        return made + rng.choice(_MARKS) if rng.random() < 0.35 else made
