"""The argument for merging, tried: random grammars in all forms, every short text of each."""

from __future__ import annotations

import random

from tests.support.random_grammars import random_grammar
from tests.torture.random_grammars import differences

NUM_GRAMMARS = 120


def test_all_forms_of_random_grammars_take_the_same_texts() -> None:
    num_tried = num_taken = 0
    for number in range(NUM_GRAMMARS):
        grammar = random_grammar(random.Random(f"unit {number}"))
        done = differences(grammar)
        if done is None:
            continue
        assert not done[2], f"{grammar.text}{done[2]}"
        num_tried += done[0]
        num_taken += done[1]
    assert num_tried > 10_000
    assert num_taken > 500
