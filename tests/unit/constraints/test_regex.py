"""Regular expressions: the engine lets through what Python's `re` takes, or says by name why not."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from deepinfer_cli.constraints.charset import ignoring_case
from deepinfer_cli.constraints.front import prepare
from deepinfer_cli.constraints.pattern_scan import for_python
from deepinfer_cli.constraints.regex import lark, search_patterns
from deepinfer_cli.constraints.types import ConstraintError, ConstraintOptions, ConstraintSpec
from tests.support.constraint_walk import byte_backend, cases, compiled, walk


@pytest.mark.parametrize("case", cases("regex.jsonl"), ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    try:
        template = compiled("regex", case["pattern"])
    except ConstraintError as refused:
        assert case["policy"] == "refuse", refused.message
        assert refused.code == "unsupported_schema"
        assert "position" in refused.message
        return
    matches = re.compile(for_python(case["pattern"])).fullmatch
    is_slow = case["feature"] == "catastrophic"  # for `re`
    for text in case["accept"]:
        assert walk(template, text) == "accepted"
        assert is_slow or matches(text)
    for text in case["reject"]:
        assert walk(template, text) != "accepted"
        assert is_slow or not matches(text)


REFUSED = [
    ("[a-", "bad_schema", "position 0"),
    ("(?=.*[ab]c)" * 8 + "[a-c]+", "unsupported_schema", "look-aheads"),
    ("(a", "bad_schema", "unterminated"),
    ("\\", "bad_schema", "escape"),
    ("a{3,1}", "bad_schema", "repeat"),
    ("a\0b", "bad_schema", "NUL at position 1"),
    ("a\ud800", "bad_schema", "lone surrogate"),
    ("(?<=a)b", "unsupported_schema", "look-behind at position 0"),
    ("b(?<!a)", "unsupported_schema", "look-behind at position 1"),
    ("a(?=b)b", "unsupported_schema", "look-ahead that does not stand at the start at position 1"),
    ("(a)\\1", "unsupported_schema", "back-reference at position 3"),
    ("(?P<x>a)(?P=x)", "unsupported_schema", "back-reference at position 8"),
    ("(a)?(?(1)b|c)", "unsupported_schema", "conditional group at position 4"),
    ("(?>a|ab)c", "unsupported_schema", "atomic group at position 0"),
    ("xa++a", "unsupported_schema", "possessive quantifier at position 2"),
    ("a{2}+a", "unsupported_schema", "possessive quantifier at position 1"),
    ("[+]\\b", "unsupported_schema", "\\b at position 3"),
    ("a^b", "unsupported_schema", "^ inside the pattern at position 1"),
    ("(?:^a)*b", "unsupported_schema", "^ inside the pattern"),
    ("a\\Zb", "unsupported_schema", "\\Z inside the pattern at position 1"),
    ("(?m)^a$", "unsupported_schema", "(?m)"),
    ("\\p{Greek}", "unsupported_schema", "\\p{Greek} at position 0"),
    ("(?i)\\p{Lu}", "unsupported_schema", "(?i)"),
    ("((a{100}){100}){100}", "unsupported_schema", "10,000"),
    ("(a{1,1000}){1,1000}", "unsupported_schema", "10,000"),
    ("(?!.*b.{15}).*c", "unsupported_schema", "more than 8 positions behind a star at position 0"),
    ("(" * 200 + "a" + ")" * 200, "bad_schema", "100 levels"),
    ("a" * (1 << 20), "bad_schema", "65,536"),
]


@pytest.mark.parametrize(("pattern", "code", "words"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused_by_name(pattern: str, code: str, words: str) -> None:
    with pytest.raises(ConstraintError) as refused:
        lark(pattern)
    assert refused.value.code == code
    assert words in refused.value.message


ALIKE = [
    ("^a{,2}$", ["", "a", "aa"], ["aaa"]),
    ("(^|x)a(b|$)", ["a", "xa", "ab"], ["xb", "aa"]),
    ("(?:^a)?b", ["ab", "b"], ["a"]),
    ("(?=.*\\d)(?=.*[a-z])(?!.*xx)[a-z0-9]{3,}", ["ab1"], ["abc", "axx1", "123"]),
    ("(?=a$)a\n?", ["a", "a\n"], ["b"]),
    ("((?!a)\\w+)", ["b", "é"], ["a", ""]),
    ("(?i)straße|k", ["STRAßE", "straẞe", "\u212a"], ["strasse"]),
    ("(?i:a)b(?-i:c)", ["Abc"], ["ABc"]),
    ("(?a)\\w\\s\\d", ["a 1"], ["é 1", "a ٣", "a\u20031"]),
    ("\\w", ["é", "٣", "_", "中"], ["\u0301", "\u200d", "-"]),
    ("\\s", ["\x1c", "\x85", "\u3000"], ["\u200b", "\ufeff"]),
    ("[^\\w\\s]", ["-", "\u0301"], ["a", " "]),
    ("[\\p{Lu}\\d-]\\P{L}", ["A-", "-1", "É "], ["a-", "AA"]),
    ("(?s).", ["\n", "x"], ["", "xx"]),
    ("(?x) a [ ] b  # end", ["a b"], ["ab"]),
    ("(a|b|)", ["", "a"], ["ab"]),
    ("/\\x2f\u2028", ["//\u2028"], ["//"]),
]


@pytest.mark.parametrize(("pattern", "accept", "reject"), ALIKE, ids=[case[0] for case in ALIKE])
def test_meaning_is_that_of_re(pattern: str, accept: list[str], reject: list[str]) -> None:
    template = compiled("regex", pattern)
    matches = re.compile(for_python(pattern)).fullmatch
    for text in accept:
        assert walk(template, text) == "accepted" and matches(text), text
    for text in reject:
        assert walk(template, text) != "accepted" and not matches(text), text


def test_patterns_that_backtrack_without_end_cost_the_engine_nothing() -> None:
    template = compiled("regex", "(.*a.*){30}")
    assert walk(template, "a" * 40) == "accepted"
    assert walk(template, "a" * 29) == "incomplete"


_ATOMS = (
    "a", "b", "A", "1", "_", "\\d", "\\w", "\\s", "\\D", "\\W", "\\S", ".", "[ab]", "[^a]", "[^\\w]", "é",
    "k", "ß", "İ", "\\n", "[A-C1-3]", "(?i:k)", "(?i:[a-c])", "(?s:.)", "(?a:\\w)", "[^\\W\\d]",
)  # fmt: skip
_QUANTIFIERS = ("*", "+", "?", "{2}", "{,2}", "{1,3}", "*?", "+?", "??", "{0}", "{2,}")
_TEXT_CHARS = "aAbB1_ \nékKſßiİI.c٣"


def _pattern(rng: random.Random, depth: int) -> str:
    def part() -> str:
        return _pattern(rng, depth - 1)

    if depth == 0:
        return rng.choice(_ATOMS)
    forms = (
        lambda: rng.choice(_ATOMS),
        lambda: part() + part(),
        lambda: f"(?:{part()}|{part()})",
        lambda: f"({part()}){rng.choice(_QUANTIFIERS)}",
        lambda: rng.choice(("^", "\\A")) + part(),
        lambda: part() + rng.choice(("$", "\\Z")),
        lambda: f"{part()}|{part()}",
    )
    return rng.choice(forms)()


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("regex", r"\w" * 2_001),
        ("json_schema", json.dumps({"pattern": r"\P{L}" * 3_001})),
        ("grammar", "start: /" + r"\W" * 6_001 + "/"),
    ],
)
def test_many_classes_of_unicode_are_refused(kind: str, source: str) -> None:
    with pytest.raises(ConstraintError, match="6,000") as refused:
        prepare(ConstraintSpec(kind, source), ConstraintOptions())
    assert refused.value.code == "unsupported_schema"


@pytest.mark.parametrize("seed", range(4))
def test_drawn_patterns_and_texts(seed: int) -> None:
    rng = random.Random(seed)
    num_walked = 0
    for _ in range(60):
        ahead = rng.choice(("", "", f"(?={_pattern(rng, 1)})", f"(?!{_pattern(rng, 1)})"))
        pattern = rng.choice(("", "", "(?i)")) + ahead + _pattern(rng, 3)
        try:
            grammar = lark(pattern)
            template = byte_backend().compile(grammar)
        except ConstraintError:
            continue  # refused, or no text fits: the probe says so
        matches = re.compile(pattern).fullmatch
        for _ in range(12):
            text = "".join(rng.choices(_TEXT_CHARS, k=rng.randrange(6)))
            assert (walk(template, text) == "accepted") == bool(matches(text)), (pattern, text)
            num_walked += 1
    assert num_walked > 300


def test_every_cased_character_is_folded_as_re_does() -> None:
    everything = "".join(chr(code) for code in range(0x1E960) if not 0xD800 <= code < 0xE000)
    for char in "kKsSiIßẞµåÅΩωςσǅİıﬅ":
        found = {
            chr(code) for low, high in ignoring_case([(ord(char),) * 2]) for code in range(low, high + 1)
        }
        assert found == set(re.findall(re.escape(char), everything, re.IGNORECASE)), char


SEARCHED = [
    ("^a", ["a", "ab"], ["ba", ""]),
    ("a$", ["a", "ba"], ["ab", "a\n"]),
    ("a|^b|c$", ["xax", "bx", "xc"], ["xb", "cx"]),
    ("(?:^|,)x(?:,|$)", ["x", "a,x,b", "a,x"], ["ax", "xa"]),
    ("^(?=.*\\d)(?=.*[a-z]).{2,4}$", ["a1", "1ab2"], ["ab", "12", "a1234"]),
    ("^\\d+$", ["12"], ["٣", ""]),  # ASCII alone, as ECMA-262 says
    ("^\\D$", ["x", "é"], ["1", "٣"]),  # what Python's `re` takes too
    ("^\\s$", [" ", "\u3000"], ["\ufeff", "\x1c"]),
    ("^\\S$", ["x"], ["\ufeff", "\x1c", " "]),
    ("^.$", ["x"], ["\r", "\n", "\u2028"]),
    ("^(?!\\.)(?!.*\\.\\.)[a.]+@a$", ["a.a@a"], [".a@a", "a..a@a"]),
    ("^(?!^[-+.]*$)[+-]?\\d*\\.?\\d*$", ["1", "-.5", "+1."], ["", "-", ".", "+."]),
    ("^(?!admin$|root)\\w+$", ["admins", "roo", "x"], ["admin", "root", "roots"]),
    ("", ["", "x\n"], []),
]


@pytest.mark.parametrize(("pattern", "accept", "reject"), SEARCHED, ids=[case[0] for case in SEARCHED])
def test_patterns_of_schemas_are_searched_for(pattern: str, accept: list[str], reject: list[str]) -> None:
    whole = [text.removeprefix("^").removesuffix("$") for text in search_patterns(pattern)]
    template = byte_backend().compile("start: TEXT\nTEXT: " + " & ".join(f"/{text}/" for text in whole))
    for text in accept:
        assert walk(template, text) == "accepted" and re.search(pattern, text), text
    for text in reject:
        assert walk(template, text) != "accepted", text


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?!a)b", "^(?!\\d)b", "^(?!.*a.{20})b", "^a(?!b)"])
def test_look_aheads_that_a_schema_cannot_have(pattern: str) -> None:
    with pytest.raises(ConstraintError, match="look-ahead"):
        search_patterns(pattern)


def test_drawn_negative_look_aheads_of_schemas() -> None:
    rng = random.Random(7)
    atoms = ("a", "b", "ab", ".", "[ab]", "[^a]", "\\.", "\n", "(?i:A)", "1")

    def part(depth: int) -> str:
        kind = rng.random()
        if depth == 0 or kind < 0.35:
            return rng.choice(atoms)
        if kind < 0.6:
            return part(depth - 1) + part(depth - 1)
        if kind < 0.75:
            return f"(?:{part(depth - 1)}|{part(depth - 1)})"
        return f"(?:{part(depth - 1)}){rng.choice(('*', '+', '?', '{2}', '{1,2}'))}"

    num_taken = 0
    for _ in range(120):
        pattern = (
            f"^(?!{rng.choice(('', '.*', '^'))}{part(2)}{rng.choice(('', '$'))}){rng.choice(('', '[ab.]*$'))}"
        )
        try:
            whole = [text.removeprefix("^").removesuffix("$") for text in search_patterns(pattern)]
            template = byte_backend().compile(
                "start: TEXT\nTEXT: " + " & ".join(f"/{text}/" for text in whole)
            )
        except ConstraintError:
            continue
        search = re.compile(pattern).search
        for _ in range(15):
            text = "".join(rng.choices("aabbA.1\nc", k=rng.randrange(6)))
            if walk(template, text) == "accepted":
                assert search(text), (pattern, text)
                num_taken += 1
            elif not text.endswith("\n"):  # there `$` means more to Python
                assert not search(text), (pattern, text)
    assert num_taken > 200
