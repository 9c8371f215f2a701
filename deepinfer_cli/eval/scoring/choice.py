"""Letters of multiple choice: the last explicit statement, and nothing else, is the answer.

A statement is a box that holds a letter, "answer: X", "the answer is X" (also "correct answer", "final
answer", "option"), or a last line that is nothing but a letter. A letter anywhere else earns nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from deepinfer_cli.eval.scoring.boxed import last_box
from deepinfer_cli.eval.scoring.latex import simplify
from deepinfer_cli.eval.scoring.types import Answer, Gold, Scored, missing

_OPEN: Final = r"[\s*_`$({\[]*(?:\\(?:text|mathrm|mathbf|textbf|boxed)\s*\{\s*)*[\s*_`$({\[]*"
_STATED: Final = re.compile(
    r"\b(?:answer|option|choice)\b[\s*_`]*(?::|=|\bis\b\s*:?)"
    + _OPEN
    + r"(?:(?:option|choice)\s+[(*_]*)?(?P<letter>[A-Z])(?![A-Za-z0-9'’])",
    re.IGNORECASE,
)
_DANGLING: Final = re.compile(r"\banswer\b[\s*_`]*(?::|\bis\b\s*:?)[\s*_`$({\[\\]*\Z", re.IGNORECASE)
_LAST_LINE: Final = re.compile(r"[\s*_`$({\[]*(?P<letter>[A-Z])[\s*_`$)}\].]*")
_ALTERNATIVE: Final = re.compile(r"[\s*_`$)}\].]*(?:or|and|/|,|&)[\s*_`$({\[]*[A-Z](?![A-Za-z0-9])")
_BOXED: Final = re.compile(
    r"(?:(?:option|choice) )?\(?\[?(?P<letter>[A-Za-z])(?:\)|\]|\.|:|$)(?P<rest>.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class _Statement:
    letter: str | None  # None: a box that holds something else
    content: str
    start: int
    end: int


def gold_letter(value: Any, num_choices: int) -> str:
    """The letter of a gold answer. ValueError names what it is instead."""
    last = chr(ord("A") + num_choices - 1)
    if isinstance(value, str) and re.fullmatch(r"[A-Z]", value.strip()) and value.strip() <= last:
        return value.strip()
    raise ValueError(f"answer {value!r} is not a letter from A to {last}")


def _box_statement(text: str) -> _Statement | None:
    box = last_box(text)
    if box is None or not box.is_closed:
        return None
    plain = simplify(re.sub(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}", r"\1", box.content))
    match = _BOXED.fullmatch(plain)
    return _Statement(match["letter"].upper() if match else None, box.content, box.start, box.end)


def _is_word(letter: str | None, rest: str) -> bool:
    """Whether a capital A or I goes on as a sentence: "The answer is A matter of taste"."""
    return letter in ("A", "I") and re.match(r" +[a-z]{2,}", rest) is not None


def _statements(text: str) -> list[_Statement]:
    """Everything in `text` that states an answer."""
    # In "the answer is a matter of taste" the small a is a word; small letters count where nothing follows.
    found = [
        _Statement(m["letter"].upper(), m["letter"], m.start(), m.end())
        for m in _STATED.finditer(text)
        if m["letter"].isupper() or re.match(r"[\s*_`$)}\].]*(?:\n|\Z)", text[m.end() :])
    ]
    found = [s for s in found if _ALTERNATIVE.match(text, s.end) or not _is_word(s.letter, text[s.end :])]
    # "Answer: A or B" states two letters, so none.
    found = [replace(s, letter=None) if _ALTERNATIVE.match(text, s.end) else s for s in found]
    box = _box_statement(text)
    if box is not None:
        found.append(box)
    stripped = text.rstrip()
    line_start = stripped.rfind("\n") + 1
    if match := _LAST_LINE.fullmatch(stripped, line_start):
        found.append(_Statement(match["letter"], match["letter"], match.start("letter"), match.end("letter")))
    return found


def score_choice(answer: Answer, gold: Gold) -> Scored:
    """The letter of the statement that ends last."""
    text = answer.text
    found = _statements(text)
    last = max(found, key=lambda s: (s.end, s.letter is not None), default=None)
    box = last_box(text)
    if box is not None and not box.is_closed and (last is None or box.start >= last.start):
        return missing(answer, "the last box is not closed")
    if last is None:
        return missing(answer, "no letter stated")
    if answer.was_cut and _DANGLING.search(text):
        return missing(answer, "cut off where the letter would follow")
    span = (last.start, last.end)
    if last.letter is None:
        return Scored("wrong" if last.content else "no_answer", last.content or None, span, "not a letter")
    if ord(last.letter) - ord("A") >= gold.num_choices:
        return Scored("wrong", last.letter, span, "not one of the choices")
    right = last.letter == gold_letter(gold.answer, gold.num_choices)
    return Scored("correct" if right else "wrong", last.letter, span)
