"""Random grammars in all forms: merged, one character at a time, and by the recogniser; every short text.

python -m tests.torture.random_grammars --count 20000
"""

from __future__ import annotations

import argparse
import random
import sys

from deepinfer_cli.constraints import ebnf
from deepinfer_cli.constraints.ebnf.emit import emit
from deepinfer_cli.constraints.ebnf.exact import char_exact
from deepinfer_cli.constraints.ebnf.recogniser import Recogniser
from deepinfer_cli.constraints.types import ConstraintError
from tests.support.byte_engine import ByteEngine
from tests.support.random_grammars import RandomGrammar, random_grammar


def differences(grammar: RandomGrammar) -> tuple[int, int, list[str]] | None:
    """(texts tried, texts taken, those on which not all agree); None when the grammar is refused."""
    try:
        read = ebnf.read(grammar.text, "gbnf")
        merged = ByteEngine(ebnf.translate(grammar.text, "gbnf"))
    except ConstraintError:
        return None
    exact = ByteEngine(emit(char_exact(read)))
    recogniser = Recogniser(read)
    num_tried = num_taken = 0
    found = []
    for text in grammar.texts():
        taken = recogniser.matches(text)
        num_tried += 1
        num_taken += taken
        found_by_engine = exact.taken(text)
        if found_by_engine != merged.taken(text) or found_by_engine[1] is not taken:
            found.append(text)
    return num_tried, num_taken, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    num_refused = num_tried = num_taken = num_wrong = 0
    for number in range(options.count):
        grammar = random_grammar(random.Random(f"{options.seed} {number}"))
        done = differences(grammar)
        if done is None:
            num_refused += 1
            continue
        num_tried += done[0]
        num_taken += done[1]
        if done[2]:
            num_wrong += 1
            print(f"{number}: {done[2][:5]} of\n{grammar.text}", file=sys.stderr)
    print(
        f"{options.count - num_refused:,} grammars ({num_refused:,} refused), {num_tried:,} texts, "
        f"{num_taken:,} of them taken, {num_wrong} grammars with differences"
    )
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
