"""The same texts for xgrammar, an engine that reads GBNF without us."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.constraints import ebnf
from deepinfer_cli.constraints.ebnf.emit import emit
from deepinfer_cli.constraints.ebnf.exact import char_exact
from deepinfer_cli.constraints.ebnf.recogniser import Recogniser
from tests.support.byte_engine import ByteEngine
from tests.support.gbnf_text import gbnf_text
from tests.support.grammar_samples import SAMPLES, mutations

pytestmark = pytest.mark.oracle

CASES = Path(__file__).parents[2] / "cases" / "structured" / "ebnf.jsonl"
NUM_TEXTS = 5_000


def _grammars() -> list[tuple[str, str, str, Sequence[str]]]:
    """(name, syntax, grammar, texts that it takes) of every case and sample that is enforced."""
    cases: list[dict[str, Any]] = [json.loads(line) for line in CASES.read_text().splitlines()]
    found = [(c["id"], c["dialect"], c["grammar"], c["accept"]) for c in cases if c["policy"] == "enforce"]
    return found + [(s.name, s.syntax, s.grammar, s.accept) for s in SAMPLES]


class _XGrammar:
    def __init__(self, gbnf: str) -> None:
        from xgrammar.testing import _get_matcher_from_grammar

        self._matcher = _get_matcher_from_grammar(gbnf)

    def takes(self, text: str) -> bool:
        self._matcher.reset()
        return bool(self._matcher.accept_string(text) and self._matcher.is_terminated())


def test_all_take_the_same_of_5000_texts() -> None:
    grammars = _grammars()
    num_texts = num_taken = 0
    differences = []
    for name, syntax, text, accept in grammars:
        grammar = ebnf.read(text, syntax)
        merged, exact = ByteEngine(ebnf.translate(text, syntax)), ByteEngine(emit(char_exact(grammar)))
        recogniser, other = Recogniser(grammar), _XGrammar(gbnf_text(grammar))
        samples = [*accept, *mutations(random.Random(name), accept, NUM_TEXTS // len(grammars) + 1)]
        for sample in samples:
            answers = [reader.takes(sample) for reader in (merged, exact, other)]
            answers.append(recogniser.matches(sample))
            num_texts += 1
            num_taken += answers[0]
            if len(set(answers)) > 1:
                differences.append((name, sample, answers))
    assert not differences
    assert num_texts >= NUM_TEXTS
    assert num_taken > NUM_TEXTS // 10
    print(f"{len(grammars)} grammars, {num_texts:,} texts, {num_taken:,} taken")
