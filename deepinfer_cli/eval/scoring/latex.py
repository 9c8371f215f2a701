"""One value, many spellings: LaTeX spacing, wrappers, units and signs are taken off, nothing is computed."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from deepinfer_cli.eval.scoring.boxed import closing_brace

_SPACES: Final = re.compile(
    r"\\[,;:! ]|\\(?:quad|qquad|thinspace|enspace|displaystyle|textstyle)(?![a-zA-Z])|~|\s"
)
_WORDS: Final = re.compile(r"\\(?:text|textrm|textnormal|textit|mbox|mathrm|operatorname)\s*\{")
_STYLES: Final = re.compile(r"\\(?:mathbf|boldsymbol|mathit|mathsf|textbf|bm|mathbb)\s*\{")
_SIGNS: Final = re.compile(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})|\\degree(?![a-zA-Z])|°|\\?%|\\?\$|€|£")
_LEFT_RIGHT: Final = re.compile(r"\\(?:left|right|bigl|bigr|Bigl|Bigr|big|Big)(?![a-zA-Z])")
WORD: Final = "\x00"  # stands where words were: it joins no digits and can only be taken off at the ends


def _replace_groups(text: str, pattern: re.Pattern[str], *, keep_content: bool) -> str:
    """Each `\\name{content}` of `pattern` to its content or to WORD. Groups that do not close stay."""
    position = 0
    while match := pattern.search(text, position):
        end = closing_brace(text, match.end())
        if end < 0:
            position = match.end()
            continue
        content = text[match.end() : end]
        # A number in words' clothes, \text{70}, is a number.
        is_plain = keep_content or re.fullmatch(r"\s*[-+]?[0-9][0-9.,]*\s*", content) is not None
        text = text[: match.start()] + (content if is_plain else WORD) + text[end + 1 :]
        position = match.start()
    return text


def simplify(text: str) -> str:
    """`text` without dollar signs, styles, units and surrounding words; spaces single."""
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").replace("\u2013", "-")
    text = text.replace("{,}", ",").replace("\\!", "")
    text = _replace_groups(text, _STYLES, keep_content=True)
    text = _replace_groups(text, _WORDS, keep_content=False)
    text = _LEFT_RIGHT.sub("", _SIGNS.sub("", text))
    text = re.sub(r"\\[()\[\]]", "", text)
    text = _SPACES.sub(" ", text)
    text = re.sub(r" +", " ", text).strip(f" {WORD}")
    text = re.sub(r"(?<=[0-9])\.$", "", text)
    while text.startswith("{") and closing_brace(text, 1) == len(text) - 1:
        text = text[1:-1].strip(f" {WORD}")
    return text


def right_side(text: str) -> str:
    """What stands right of the last `=`: the value of `m + n = 70`."""
    return text.rpartition("=")[2].strip(f" {WORD}")
