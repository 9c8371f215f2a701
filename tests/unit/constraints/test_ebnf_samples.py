"""Grammars as people write them: their texts, and texts that are nearly so, in all that reads them."""

from __future__ import annotations

import random

import pytest

from deepinfer_cli.constraints import ebnf
from deepinfer_cli.constraints.ebnf.emit import emit
from deepinfer_cli.constraints.ebnf.exact import char_exact
from deepinfer_cli.constraints.ebnf.merge import OutOfWork, merged
from deepinfer_cli.constraints.ebnf.recogniser import Recogniser, StepLimit
from tests.support.byte_engine import ByteEngine
from tests.support.grammar_samples import SAMPLES, Sample, mutations

NUM_MUTATED = 30


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_all_forms_take_the_same_texts(sample: Sample) -> None:
    assert ebnf.syntax_of(sample.grammar, "auto") == sample.syntax
    grammar = ebnf.read(sample.grammar, sample.syntax)
    recogniser = Recogniser(grammar)
    whole = ByteEngine(emit(merged(grammar)))
    exact = ByteEngine(emit(char_exact(grammar)))
    for wanted, texts in ((True, sample.accept), (False, sample.reject)):
        for text in texts:
            assert (recogniser.matches(text), whole.takes(text), exact.takes(text)) == (wanted,) * 3, text
    for text in mutations(random.Random(sample.name), sample.accept, NUM_MUTATED):
        taken = exact.taken(text)
        assert whole.taken(text) == taken, text
        assert recogniser.matches(text) is taken[1], text


def test_words_and_runs_are_read_in_one_piece_where_that_is_exact() -> None:
    lark = ebnf.translate('root ::= "SELECT " name ";"\nname ::= [a-z]+', "gbnf")
    assert r"SELECT\x{20}" in lark and "/[a-z]+/" in lark
    lark = ebnf.translate('root ::= [a-z]+ "ab"', "gbnf")  # the run would swallow what follows
    assert "/[a-z]+/" not in lark
    lark = ebnf.translate('root ::= ("if" "(" | name "(") ")"\nname ::= [a-z] [a-z0-9]*', "gbnf")
    assert "/if/" in lark and "/[a-z][0-9a-z]*/" in lark  # `if(` is cut where the name may end
    lark = ebnf.translate('root ::= [à-è]+ "é"', "gbnf")  # not told apart before the second byte
    assert "]+/" not in lark


def test_a_grammar_that_is_too_much_work_keeps_single_characters() -> None:
    sample = next(sample for sample in SAMPLES if sample.name == "c")
    with pytest.raises(OutOfWork):
        merged(ebnf.read(sample.grammar, sample.syntax), max_work=100)


def test_a_rule_that_ends_with_itself_is_a_loop() -> None:
    engine = ByteEngine(ebnf.translate('root ::= "a" root | "b"', "gbnf"))
    assert engine.takes("a" * 5000 + "b")  # the engine alone ends at 2,000 levels


def test_the_recogniser_is_linear_where_a_text_has_one_reading_and_stops_where_it_has_too_many() -> None:
    for text in ('root ::= "a" root | "b"', 'root ::= root "a" | "b"', 'root ::= "a"* "b" | "c"'):
        recogniser = Recogniser(ebnf.read(text, "gbnf"))
        sample = "b" + "a" * 5000 if 'root "a"' in text else "a" * 5000 + "b"
        assert recogniser.matches(sample)
        assert recogniser.steps < 20 * len(sample)
    with pytest.raises(StepLimit):
        Recogniser(ebnf.read('root ::= root root | "a" | "aa"', "gbnf"), max_steps=10_000).matches("a" * 200)
    assert issubclass(StepLimit, TimeoutError)


def _many(rule: str, count: int, last: str) -> str:
    """Rules r0 … that call the next one."""
    rules = "".join(f"r{i} ::= {rule.replace('NEXT', f'r{i + 1}')}\n" for i in range(count))
    return f"root ::= r0\n{rules}r{count} ::= {last}\n"


LARGE = {
    "a chain of rules": _many('"a" NEXT', 20_000, '"b"'),
    "a chain of names": _many("NEXT", 20_000, '"b"'),
    "a chain back to the start": _many('"a" NEXT | "b" r0', 9_000, '"c"'),
    "many words": "root ::= " + " | ".join(f'"word{i}"' for i in range(50_000)),
    "words that go on": "root ::= (" + " | ".join(f'"word{i}"' for i in range(50_000)) + ") [0-9]*",
    "many alternatives": "root ::= " + " | ".join(f'"w{i}" [a-z]' for i in range(20_000)),
    "a long text": 'root ::= "' + "ab" * 500_000 + '"',
    "many options": "root ::= " + "[ab]? [bc]? " * 15_000,
    "counts in counts": 'root ::= (("a"{1,1000} "b"){1,1000} "c"){1,1000}',
    "counts without end": "root ::= " + "(" * 900 + '"a"' + "){1,1000}" * 900,
    "deep brackets": "root ::= " + "(" * 1_000 + '"a"' + ")" * 1_000,
    "deeper brackets": "root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000,
    "stars in stars": "root ::= " + "(" * 999 + '"a" | "b"' + ')* "c" | "d"' * 999,
    "sets": "root ::= ([" + "".join(chr(0x4E00 + 2 * i) for i in range(10_000)) + "] | [a-z]+)*",
    "empty in all ways": 'root ::= a*\na ::= b*\nb ::= c* c?\nc ::= "x"? | ""',
    "comments": "# # " * 200_000 + '\nroot ::= "a"',
    "one name": "a" * 1_000_000 + " ::= 'b'",
    "open brackets": "root ::= " + "[" * 900_000,
    "quotes": "root ::= " + '"' * 900_001,
    "too long": "root ::= " + '"a" ' * 300_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_large_grammar_is_answered(name: str) -> None:
    """No RecursionError, no crash of the engine; the time is measured by the fuzzer."""
    try:
        lark = ebnf.translate(LARGE[name], "auto")
    except ebnf.ConstraintError as error:
        assert len(error.message) < 300
        return
    ByteEngine(lark).taken("a")
