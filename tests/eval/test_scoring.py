"""The scorer: cases with expected verdicts, ten thousand transcripts whose last box is known, and mutants."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.eval.scoring import boxed, integer, score
from deepinfer_cli.eval.scoring.reasoning import strip_reasoning
from deepinfer_cli.eval.scoring.score import check_gold, score_output
from deepinfer_cli.eval.scoring.types import Gold

CASES = [json.loads(line) for line in (Path(__file__).parent / "data/answers.jsonl").read_text().splitlines()]


def failures_of_cases() -> list[str]:
    failed = []
    for case in CASES:
        got = score_output("integer", case["output"], case["finish_reason"], Gold(case["gold"]))
        if {"extracted": got.extracted, "verdict": got.verdict} != case["expect"]:
            failed.append(case["case"])
    return failed


def test_cases_with_expected_verdicts() -> None:
    assert len(CASES) == 8
    assert failures_of_cases() == []


@pytest.mark.parametrize(
    ("box", "value"),
    [
        ("70", 70),
        ("070", 70),
        ("+70", 70),
        ("-7", -7),
        ("\u22127", -7),
        ("70.", 70),
        ("70.00", 70),
        ("1,000", 1000),
        ("1{,}000", 1000),
        ("1\\,000", 1000),
        ("1 000", 1000),
        ("12\\,345\\,678", 12345678),
        ("$70$", 70),
        ("\\text{70}", 70),
        ("\\mathbf{70}", 70),
        ("\\textbf{70}", 70),
        ("70^\\circ", 70),
        ("70^{\\circ}", 70),
        ("70\\%", 70),
        ("70\\text{ cm}", 70),
        ("\\text{The answer is } 70", 70),
        ("m+n=70", 70),
        ("m = 30, n = 40, m+n = 70", 70),
        ("\\left(70\\right)".replace("\\left(", "{").replace("\\right)", "}"), 70),
        ("\uff17\uff10", 70),
        ("0", 0),
        ("000", 0),
        ("3 or 7", None),
        ("3, 7", None),
        ("70\\text{ or }71", None),
        ("70\\text{ or }715", None),
        ("70x", None),
        ("70.5", None),
        ("70.0000001", None),
        ("\\frac{140}{2}", None),
        ("7\\cdot 10", None),
        ("1,00", None),
        ("12,34,567", None),
        ("seventy", None),
        ("1e2", None),
        ("\u0667\u0660", None),
        ("9" * 5000, None),
    ],
)
def test_integers_are_read_exactly(box: str, value: int | None) -> None:
    assert integer.parse_integer(box) == value


@pytest.mark.parametrize(
    ("text", "finish", "verdict", "extracted"),
    [
        ("\\boxed{\\boxed{70}}", "stop", "correct", "70"),
        ("\\boxed{12} then \\boxed{70", "stop", "no_answer", None),
        ("\\boxed{12 then \\boxed{70}.", "stop", "correct", "70"),
        ("\\boxed{\\{70\\}}", "stop", "wrong", "\\{70\\}"),
        ("\\boxed {70}", "stop", "correct", "70"),
        ("\\\\boxed{70}", "stop", "correct", "70"),
        ("\\fbox{70}", "stop", "correct", "70"),
        ("\\boxed{70} and some more that was cut", "length", "correct", "70"),
        ("we were still thinki", "length", "truncated", None),
        ("\\boxed{}", "stop", "no_answer", None),
        ("\\boxed{71}", "stop", "wrong", "71"),
        ("", "stop", "no_answer", None),
        ("<think>\\boxed{70}", "length", "truncated", None),
        ("<think>\\boxed{70}", "stop", "no_answer", None),
        ("\\boxed{70}</think>Done.", "stop", "no_answer", None),
        ("\\boxed{12}</think>\\boxed{70}", "stop", "correct", "70"),
        ("<think>a</think>x<think>\\boxed{12}</think>\\boxed{70}", "stop", "correct", "70"),
        ("<think>a<think>b</think>\\boxed{12}</think>\\boxed{70}", "stop", "correct", "70"),
        ("\\boxed{70}<think>hm, \\boxed{12}?</think>", "stop", "correct", "70"),
        ("[THINK]\\boxed{12}[/THINK]\\boxed{70}", "stop", "correct", "70"),
    ],
)
def test_boxes(text: str, finish: str, verdict: str, extracted: str | None) -> None:
    got = score_output("integer", text, finish, Gold(70))
    assert (got.verdict, got.extracted) == (verdict, extracted)


def test_span_is_where_the_box_stands_in_the_output() -> None:
    text = "<think>\\boxed{1}</think> so \\boxed{70}."
    got = score_output("integer", text, "stop", Gold(70))
    assert got.span is not None
    assert text[slice(*got.span)] == "\\boxed{70}"


def test_stripping_keeps_the_length() -> None:
    for text in ("<think>a", "a</think>b", "<think>a</think>b<think>c</think>d", "nothing"):
        assert len(strip_reasoning(text)) == len(text)


# ---- ten thousand transcripts ----------------------------------------------------------------------------

_FILLER = (
    "Let $x_1 = \\frac{a}{b}$ and note that $\\{1, 2\\} \\subset S$. ",
    "So we get 12, or maybe 13. ",
    "\\[ \\sum_{i=1}^{n} i = \\frac{n(n+1)}{2} \\]\n",
    "The set is $\\{x : x > 3\\}$, hence the answer: 44.\n",
    "\\begin{align} a &= b \\\\ c &= d \\end{align}\n",
    "An unmatched } brace. ",
    "Wait, that is wrong.\n\n",
    "```python\nprint({1: {2: 3}})\n```\n",
)
_DRESSED = (
    "{}",
    "{:,}",
    "0{}",
    "${}$",
    "\\text{{{}}}",
    "m+n={}",
    "\\mathbf{{{}}}",
    " {} ",
    "{}.0",
    "{}^\\circ",
)


def transcript(rng: random.Random) -> tuple[str, str, str, str | None]:
    """(output, finish_reason, verdict, extracted) for the gold answer 70."""

    def filler() -> str:
        return "".join(rng.choice(_FILLER) for _ in range(rng.randrange(4)))

    def box(value: int) -> str:
        return f"\\boxed{{{rng.choice(_DRESSED).format(value)}}}"

    def boxes() -> str:
        return "".join(filler() + box(rng.choice((70, rng.randrange(1000)))) for _ in range(rng.randrange(3)))

    thinking = rng.choice(("", f"<think>{boxes()}{filler()}</think>\n", f"{boxes()}{filler()}</think>\n"))
    early = boxes()
    ending = rng.choice(("box", "box", "box", "open", "none", "thought"))
    if ending == "box":
        value = rng.choice((70, rng.randrange(1000)))
        verdict = "correct" if value == 70 else "wrong"
        text = thinking + early + filler() + box(value) + filler().replace("}", "")
        return text, rng.choice(("stop", "length")), verdict, str(value)
    finish = rng.choice(("stop", "length"))
    verdict = "truncated" if finish == "length" else "no_answer"
    if ending == "open":
        return (
            f"{thinking}{early}{filler()}\\boxed{{{rng.choice(('', '7', '70', 'm+n='))}",
            finish,
            verdict,
            None,
        )
    if ending == "none":
        return thinking + filler(), finish, verdict, None
    return f"<think>{early}{filler()}{box(70)}", finish, verdict, None


def failures_of_transcripts(num_transcripts: int) -> int:
    rng = random.Random(20261130)
    failed = 0
    for _ in range(num_transcripts):
        text, finish, verdict, extracted = transcript(rng)
        got = score_output("integer", text, finish, Gold("070"))
        failed += (got.verdict, got.extracted) != (verdict, extracted)
    return failed


def test_ten_thousand_transcripts_with_a_known_last_box() -> None:
    rng = random.Random(20261130)
    seen: dict[str, int] = {}
    for _ in range(10_000):
        text, finish, verdict, extracted = transcript(rng)
        got = score_output("integer", text, finish, Gold("070"))
        assert (got.verdict, got.extracted) == (verdict, extracted), text
        seen[verdict] = seen.get(verdict, 0) + 1
    assert min(seen.get(v, 0) for v in ("correct", "wrong", "no_answer", "truncated")) > 500


# ---- mutants: each breaks one rule, and the checks above must notice -------------------------------------


def first_box(text: str) -> boxed.Box | None:
    match = re.search(r"\\boxed\s*\{", text)
    end = boxed.closing_brace(text, match.end()) if match else -1
    if match is None:
        return None
    is_closed = end >= 0
    content = text[match.end() : end if is_closed else len(text)]
    return boxed.Box(content.strip(), match.start(), end + 1 if is_closed else len(text), is_closed)


def last_closed_box(text: str) -> boxed.Box | None:
    """Forgets an open last box, so that an earlier one earns credit."""
    while (box := boxed.last_box(text)) is not None and not box.is_closed:
        text = text[: box.start]
    return box


def innermost_from_regex(text: str) -> boxed.Box | None:
    """The field's usual pattern, which ends a box at the first brace."""
    found = list(re.finditer(r"\\boxed\{([^}]*)\}", text))
    return boxed.Box(found[-1][1], found[-1].start(), found[-1].end(), True) if found else None


@pytest.mark.parametrize(
    ("module", "name", "mutant"),
    [
        (score, "strip_reasoning", lambda text: text),
        (integer, "last_box", first_box),
        (integer, "last_box", last_closed_box),
        (integer, "last_box", innermost_from_regex),
        (integer, "right_side", lambda text: text),
    ],
    ids=[
        "reasoning-not-stripped",
        "first-box",
        "no-truncation-rule",
        "box-ends-at-first-brace",
        "no-equation",
    ],
)
def test_a_broken_rule_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutant: Any
) -> None:
    assert failures_of_transcripts(300) == 0
    monkeypatch.setattr(module, name, mutant)
    assert failures_of_transcripts(300) > 0


@pytest.mark.parametrize(
    ("module", "name", "mutant"),
    [(integer, "last_box", first_box), (integer, "last_box", last_closed_box)],
)
def test_the_cases_notice_too(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutant: Any) -> None:
    monkeypatch.setattr(module, name, mutant)
    assert failures_of_cases() != []


# ---- letters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "verdict", "extracted"),
    [
        ("Answer: B", "correct", "B"),
        ("**Answer: B**", "correct", "B"),
        ("**Answer:** B", "correct", "B"),
        ("Answer: (B)", "correct", "B"),
        ("Answer: $B$", "correct", "B"),
        ("ANSWER: B.", "correct", "B"),
        ("answer: b", "correct", "B"),
        ("The correct answer is B.", "correct", "B"),
        ("The answer is option B, since it is larger.", "correct", "B"),
        ("The final answer is: \\boxed{B}", "correct", "B"),
        ("\\boxed{\\text{B}}", "correct", "B"),
        ("\\boxed{\\text{(B)}}", "correct", "B"),
        ("\\boxed{B) 42 kJ}", "correct", "B"),
        ("I considered A, C and D.\nB", "correct", "B"),
        ("Answer: A\nOn reflection, Answer: B", "correct", "B"),
        ("\\boxed{A}\nNo.\nAnswer: B", "correct", "B"),
        ("Answer: C", "wrong", "C"),
        ("Answer: F", "wrong", "F"),
        ("Answer: A or B", "wrong", "A"),
        ("B is larger than A, which is clear.", "no_answer", None),
        ("The answer is a matter of taste.", "no_answer", None),
        ("The answer is A matter of taste.", "no_answer", None),
        ("The answer is not B", "no_answer", None),
        ("The answer is Boron", "no_answer", None),
        ("", "no_answer", None),
        ("<think>Answer: B</think>", "no_answer", None),
        ("\\boxed{42}", "wrong", "42"),
        ("Answer: A, then \\boxed{B", "no_answer", None),
    ],
)
def test_letters(text: str, verdict: str, extracted: str | None) -> None:
    got = score_output("choice", text, "stop", Gold("B", num_choices=4))
    assert (got.verdict, got.extracted) == (verdict, extracted)


def test_cut_off_before_the_letter_earns_nothing() -> None:
    got = score_output("choice", "Answer: B. But wait. Answer:", "length", Gold("B", num_choices=4))
    assert got.verdict == "truncated"


# ---- JSON, numbers, text ---------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


@pytest.mark.parametrize(
    ("text", "finish", "verdict"),
    [
        ('{"age": 3}', "stop", "correct"),
        ('{"age": 3.0}', "stop", "correct"),
        ('Here it is:\n```json\n{"age": 3}\n```\nDone.', "stop", "correct"),
        ('```json\n{"age": 4}\n```\n```json\n{"age": 3}\n```', "stop", "correct"),
        ('{"age": 4}', "stop", "wrong"),
        ('{"age": true}', "stop", "wrong"),
        ('{"age": "3"}', "stop", "wrong"),
        ('{"age": 3, "age": 3}', "stop", "wrong"),
        ('{"age": NaN}', "stop", "wrong"),
        ('{"age": 3', "length", "truncated"),
        ('{"age": 3', "stop", "wrong"),
        ('The answer is {"age": 3}', "stop", "wrong"),
        ("[" * 100_000, "stop", "wrong"),
        ("", "stop", "no_answer"),
        ('<think>{"age": 3}</think>', "stop", "no_answer"),
    ],
)
def test_json(text: str, finish: str, verdict: str) -> None:
    assert score_output("json", text, finish, Gold({"age": 3}, schema=SCHEMA)).verdict == verdict
    assert score_output("json", text, finish, Gold('{"age":3}', schema=SCHEMA)).verdict == verdict


def test_json_by_schema_alone() -> None:
    assert score_output("json", '{"age": 8}', "stop", Gold(None, schema=SCHEMA)).verdict == "correct"
    got = score_output("json", '{"name": 8}', "stop", Gold(None, schema=SCHEMA))
    assert got.verdict == "wrong"
    assert got.note is not None and "age" in got.note


@pytest.mark.parametrize(
    ("box", "gold", "verdict"),
    [
        ("18", "18", "correct"),
        ("\\$18.00", 18, "correct"),
        ("1,234.5", "1234.5", "correct"),
        ("\\frac{1}{2}", "0.5", "correct"),
        ("36/2", 18, "correct"),
        ("-0.5", "-1/2", "correct"),
        ("18.01", 18, "wrong"),
        ("1/0", 18, "wrong"),
    ],
)
def test_numbers(box: str, gold: Any, verdict: str) -> None:
    assert score_output("number", f"So \\boxed{{{box}}}.", "stop", Gold(gold)).verdict == verdict


@pytest.mark.parametrize(
    ("box", "gold", "verdict"),
    [
        ("\\dfrac{1}{2}", "\\frac12", "correct"),
        ("0.5", "\\frac{1}{2}", "correct"),
        ("\\left( 3, \\frac{\\pi}{2} \\right)", "\\left(3,\\frac{\\pi}{2}\\right)", "correct"),
        ("x = 5", "5", "correct"),
        ("\\text{Evelyn}", "Evelyn", "correct"),
        ("10\\sqrt{3}", "10\\sqrt3", "correct"),
        ("90^\\circ", "90", "correct"),
        ("\\sqrt{12}", "2\\sqrt{3}", "wrong"),
    ],
)
def test_expressions(box: str, gold: str, verdict: str) -> None:
    assert score_output("math", f"\\boxed{{{box}}}", "stop", Gold(gold)).verdict == verdict


def test_exact_and_folded_text() -> None:
    assert score_output("exact", "<think>hm</think>\nSlow", "stop", Gold("Slow")).verdict == "correct"
    assert score_output("exact", "slow", "stop", Gold("Slow")).verdict == "wrong"
    assert score_output("exact", "Slo", "length", Gold("Slow")).verdict == "truncated"
    assert score_output("text", "  the  Moon. ", "stop", Gold("The moon")).verdict == "correct"
    assert score_output("text", " ", "stop", Gold("The moon")).verdict == "no_answer"


def test_judged_samples_wait_for_the_judge() -> None:
    assert score_output("judge", "It is 4.", "stop", Gold("4")).verdict == "unjudged"
    assert score_output("judge", "", "stop", Gold("4")).verdict == "no_answer"
    assert score_output("judge", "It is", "length", Gold("4")).verdict == "truncated"


@pytest.mark.parametrize(
    ("scorer", "gold"),
    [
        ("integer", Gold("7.5")),
        ("integer", Gold(True)),
        ("integer", Gold(None)),
        ("choice", Gold("E", num_choices=4)),
        ("number", Gold("many")),
        ("exact", Gold("  ")),
        ("json", Gold(None)),
    ],
)
def test_a_gold_answer_that_nothing_can_match_is_refused(scorer: str, gold: Gold) -> None:
    with pytest.raises(ValueError):
        check_gold(scorer, gold)


def test_a_long_hostile_output_takes_no_quadratic_time() -> None:
    text = "\\boxed{" * 50_000 + "\\boxed{70}"
    assert score_output("integer", text, "stop", Gold(70)).verdict == "correct"
