"""Inputs that are almost right: pieces of good ones cut, doubled, swapped, nested, replaced by odd words."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

# Values that loaders meet where they want something else.
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**70, 1.5, float("nan"), float("inf"), "", "x", "9" * 5000),
    *([], [1], [None], {}, {"a": 1}, [[[]]], "\ud800", "\0", "\u2028"),
)


def text(rng: random.Random, seeds: Sequence[str], words: Sequence[str], max_chars: int) -> str:
    """A seed with some words and pieces of other seeds put into it."""
    made = rng.choice(seeds)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(made) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            made = made[:at] + rng.choice(words) + made[at:]
        elif kind == 1:
            made = made[:at] + made[at + rng.randint(1, 20) :]
        elif kind == 2:
            other = rng.choice(seeds)
            made = made[:at] + other[rng.randrange(len(other) + 1) :]
        elif kind == 3:
            made = (
                made[:at] + made[max(0, at - rng.randint(1, 30)) : at] * rng.choice((1, 2, 3, 50)) + made[at:]
            )
        else:
            made = made[:at] + chr(rng.choice((rng.randrange(128), rng.randrange(0x2100)))) + made[at + 1 :]
    return made[:max_chars]


def value(rng: random.Random, document: Any) -> Any:
    """A JSON value with one to three of its parts replaced, removed, doubled or nested."""
    made = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        holders = [made]
        for holder in holders:
            inner = holder.values() if isinstance(holder, dict) else holder
            holders.extend(item for item in inner if isinstance(item, (dict, list)) and item)
            if len(holders) > 2000:
                break
        holder = rng.choice([h for h in holders if h] or [made])
        if not holder:
            continue
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        kind = rng.randrange(4)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            holder[key] = [holder[key]] * rng.choice((1, 2, 40))
            made = json.loads(json.dumps(made))  # no part is in two places: nesting one could make a circle
        elif kind == 2:
            nested = holder[key]
            for _ in range(rng.choice((1, 40, 100))):
                nested = {"type": "Sequence", "normalizers": [nested]} if rng.random() < 0.5 else [nested]
            holder[key] = nested
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    return made
