"""Grammars: each case in all that reads it, and what is refused with the place where it is wrong."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.constraints import ebnf
from deepinfer_cli.constraints.ebnf import charset, merge
from deepinfer_cli.constraints.ebnf.emit import emit
from deepinfer_cli.constraints.ebnf.exact import char_exact
from deepinfer_cli.constraints.ebnf.recogniser import Recogniser
from deepinfer_cli.constraints.types import CheckSpec, ConstraintError
from deepinfer_cli.constraints.validate import check_text
from tests.support.byte_engine import ByteEngine

CASES = Path(__file__).parents[2] / "cases" / "structured" / "ebnf.jsonl"
_CASES: list[dict[str, Any]] = [json.loads(line) for line in CASES.read_text().splitlines()]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["id"])
def test_a_case_is_enforced_or_refused(case: dict[str, Any]) -> None:
    text, syntax = case["grammar"], case["dialect"]
    assert ebnf.syntax_of(text, "auto") == syntax
    if case["policy"] == "refuse":
        with pytest.raises(ConstraintError):
            ebnf.translate(text, syntax)
        return
    merged = ByteEngine(ebnf.translate(text, syntax))
    exact = ByteEngine(emit(char_exact(ebnf.read(text, syntax))))
    for wanted, texts in ((True, case["accept"]), (False, case["reject"])):
        for sample in texts:
            assert merged.takes(sample) is wanted
            assert exact.takes(sample) is wanted
            assert ebnf.recognise(text, syntax, sample) is wanted


REFUSED = (
    # syntax, grammar, code, words of the message
    ("gbnf", 'root ::= "a" missing', "bad_schema", "line 1, column 14 of the grammar: the rule 'missing'"),
    ("gbnf", "root ::= a\n\na ::= a 'x'", "bad_schema", "line 3, column 9 of the grammar: ''' means"),
    ("gbnf", 'root ::= "a"\nroot ::= "b"', "bad_schema", "line 2, column 1 of the grammar: the rule 'root'"),
    ("gbnf", 'a ::= "a"', "bad_schema", "no rule 'root'"),
    ("gbnf", 'root ::= "a" b ::= "c"', "bad_schema", "on a line of its own"),
    ("gbnf", "root ::= [z-a]", "bad_schema", "column 11 of the grammar: the range is out of order"),
    ("gbnf", "root ::= []", "bad_schema", "no character"),
    ("gbnf", r"root ::= [^\x00-\U0010FFFF]", "bad_schema", "no character"),
    ("gbnf", "root ::= [a", "bad_schema", "never closed"),
    ("gbnf", 'root ::= ("a"', "bad_schema", "column 10 of the grammar: the bracket is never closed"),
    ("gbnf", 'root ::= "a")', "bad_schema", "closes nothing"),
    ("gbnf", r'root ::= "\q"', "bad_schema", "escape"),
    ("gbnf", r'root ::= "\u12"', "bad_schema", "4 hexadecimal digits"),
    ("gbnf", r'root ::= "\ud800"', "bad_schema", "no character"),
    ("gbnf", 'root ::= * "a"', "bad_schema", "nothing before"),
    ("gbnf", 'root ::= "a"{}', "bad_schema", "a count is written"),
    ("gbnf", 'root ::= "a"{3,2}', "bad_schema", "out of order"),
    ("gbnf", 'root ::= "a"{99999}', "unsupported_schema", "10,000"),
    ("gbnf", "root ::= <think>", "unsupported_schema", "tokens"),
    ("gbnf", 'root ::= "a" | "b" x\nx ::= "c" x', "bad_schema", "line 2, column 1 of the grammar: the rule"),
    ("gbnf", 'root ::= "a\0"', "bad_schema", "NUL"),
    ("w3c", "A ::= 'a' - B\nB ::= 'bc'", "unsupported_schema", "single characters"),
    ("w3c", "A ::= 'a' - 'a'", "bad_schema", "no character is left"),
    ("w3c", "A ::= 'a' -", "bad_schema", "behind the '-'"),
    ("w3c", "A ::= B-C\nB ::= 'b'\nC ::= 'c'", "bad_schema", "with spaces"),
    ("w3c", "A ::= B - C\nB ::= B\nC ::= 'c'", "unsupported_schema", "single characters"),
    ("w3c", "A ::= #x110000", "bad_schema", "no character"),
    ("w3c", "A ::= 'a' /* b", "bad_schema", "comment"),
    ("w3c", "A ::= 'a'{2}", "bad_schema", "no counts"),
    ("iso", "a = ? any ? ;", "unsupported_schema", "special sequence"),
    ("iso", "a = 'x' 'y' ;", "bad_schema", "',' is missing"),
    ("iso", "a = b c ; b = 'x' ; c = 'y' ;", "bad_schema", "',' is missing between"),
    ("iso", "a = 'x'", "bad_schema", "does not end with ';'"),
    ("iso", "a = 'x' , ;", "bad_schema", "behind the ','"),
    ("iso", "a = 3 'x' ;", "bad_schema", "behind a number"),
    ("iso", "a = { 'x' ) ;", "bad_schema", "closes nothing"),
    ("iso", "a = 'x' (* b ;", "bad_schema", "comment"),
    ("lark", "start: <|im_end|>", "unsupported_schema", "tokens"),
    ("lark", 'start: %json { "type": "object" }', "unsupported_schema", "%json"),
    ("lark", "%import other.X\nstart: X", "unsupported_schema", "%import"),
    ("lark", 'start: X\nX: ~"a"', "unsupported_schema", "'~'"),
    ("lark", "start: @other", "unsupported_schema", "other grammars"),
    ("lark", 'start[max_tokens=3]: "a"', "unsupported_schema", "attributes"),
    ("lark", 'start: "a" b\n', "bad_schema", "line 1, column 12 of the grammar: the rule 'b'"),
    ("lark", 'start: "a" | b\nb: "c" b\n', "bad_schema", "never finishes"),
    ("lark", 'a: "b"', "bad_schema", "no rule 'start'"),
    ("lark", "start: X\nX: " + " & ".join(f"/.*a.{{{i}}}/" for i in range(9)), "unsupported_schema", "'&'"),
    ("lark", "start: " + " | ".join(f'"w{i}"' for i in range(50_000)), "unsupported_schema", "alternatives"),
    ("lark", "start: X\nX: A & B\nA: /a/&/b/&/c/&/d/&/e/\nB: /f/&/g/&/h/&/i/", "unsupported_schema", "'&'"),
    ("lark", 'start: "' + "a" * 1_000_000 + '"', "unsupported_schema", "400,000 characters"),
    ("auto", "no grammar", "bad_schema", "no rule"),
    ("auto", "A ::= \"\\n\"", "bad_schema", "GBNF or W3C"),
)  # fmt: skip


@pytest.mark.parametrize(("syntax", "grammar", "code", "words"), REFUSED)
def test_what_is_wrong_is_said_with_its_place(syntax: str, grammar: str, code: str, words: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        ebnf.translate(grammar, syntax)
    assert words in caught.value.message
    assert caught.value.code == code
    assert "\n" not in caught.value.message


def test_each_terminal_of_lark_has_its_own_signs() -> None:
    both = " & ".join(["/.*a.*/"] * 8)
    grammar = f"start: A | B B\nA: {both}\nB: {both}"
    assert ebnf.translate(grammar, "lark") == grammar


def test_sets_that_meet_have_a_common_character() -> None:
    rng = random.Random(21)
    for _ in range(2_000):
        a, b = ([(at, at + rng.randrange(3)) for at in rng.sample(range(0, 60, 4), 3)] for _ in range(2))
        first, second = charset.union([tuple(sorted(a))]), charset.union([tuple(sorted(b))])
        assert charset.meet(first, second) == bool(charset.intersection(first, second))


def test_many_large_sets_stay_apart_instead_of_being_compared() -> None:
    classes = ["[^" + "".join(chr(0x4E00 + 3 * i + k) for i in range(100)) + "]" for k in range(300)]
    grammar = ebnf.read("root ::= " + " ".join(classes), "gbnf")
    with pytest.raises(merge.OutOfWork):
        merge.merged(grammar, max_work=10_000)


def test_a_check_without_end_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the row keeps its text with a warning, and nothing is claimed about it."""
    monkeypatch.setattr(ebnf, "_recogniser", lambda text, syntax: Recogniser(ebnf.read(text, syntax), 30_000))
    check = CheckSpec("grammar", 'root ::= root root | "a" | "aa" | ""', "gbnf")
    assert check_text(check, "a" * 10).outcome == "valid"
    verdict = check_text(check, "a" * 200)
    assert verdict.outcome == "timeout" and "steps" in verdict.message
