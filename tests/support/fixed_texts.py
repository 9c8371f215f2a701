"""The 50 fixed texts and the rule that chose the positions scored in them.

tests/texts/texts.jsonl holds one text per line: `name`, `kind` (prose, code, chat), `text`, its `tokens`
(SmolLM2's), `num_header` (leading tokens that many texts share: a chat's system message) and `positions`.
tests/texts/make_texts.py writes it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "texts"
SHIPPED = Path(__file__).parents[2] / "deepinfer_cli" / "bench" / "texts"  # prose and code of benchmarks
TEXTS = FOLDER / "texts.jsonl"
MIN_TOKENS = 300  # without the header
MAX_TOKENS = 384  # without the header; longer sources are cut here
NUM_POSITIONS = 64
FIRST_CANDIDATE = 32  # positions with less context of their own than this are not scored


@dataclass(frozen=True)
class FixedText:
    name: str
    kind: str  # "prose", "code" or "chat"
    text: str
    tokens: tuple[int, ...]
    num_header: int  # leading tokens shared with other texts
    positions: tuple[int, ...]  # [NUM_POSITIONS] ascending; the token at each is predicted from those before


def choose_positions(
    name: str, num_header: int, num_tokens: int, count: int = NUM_POSITIONS
) -> tuple[int, ...]:
    """Of all positions with enough context of the text's own, those with the smallest hashes.

    A function of the name and the two counts only: it cannot know how any engine does at a position.
    """
    candidates = range(num_header + FIRST_CANDIDATE, num_tokens)
    ranked = sorted(candidates, key=lambda p: hashlib.sha256(f"{name}:{p}".encode()).digest())
    return tuple(sorted(ranked[:count]))


def load_texts() -> list[FixedText]:
    records = [json.loads(line) for line in TEXTS.read_text(encoding="utf-8").splitlines()]
    return [
        FixedText(**{**r, "tokens": tuple(r["tokens"]), "positions": tuple(r["positions"])}) for r in records
    ]


def source_of(kind: str) -> Path:
    """The file that the texts of a kind were cut from."""
    return (FOLDER if kind == "chat" else SHIPPED) / f"{kind}.txt"


def read_sections(path: Path) -> dict[str, str]:
    """`=== NAME` lines start a section; the text up to the next one belongs to it."""
    sections: dict[str, str] = {}
    name = ""
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("=== "):
            name = line[4:].strip()
            sections[name] = ""
        else:
            sections[name] += line
    return {name: text.rstrip("\n") for name, text in sections.items()}
