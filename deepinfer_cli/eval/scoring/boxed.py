r"""The last `\boxed{...}` of an answer, complete or not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_OPENING: Final = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE_OR_ESCAPE: Final = re.compile(r"\\.|[{}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Box:
    content: str  # what stands between the braces, outer space and inner boxes removed
    start: int  # of the backslash
    end: int  # behind the closing brace; of an open box, the end of the text
    is_closed: bool


def _closings(text: str) -> dict[int, int]:
    r"""Position of each `{` that is closed -> position of its `}`.

    `\{` and `\}` are characters, not groups; a doubled backslash does not escape what follows.
    """
    pairs: dict[int, int] = {}
    stack: list[int] = []
    for match in _BRACE_OR_ESCAPE.finditer(text):
        if match[0] == "{":
            stack.append(match.start())
        elif match[0] == "}" and stack:
            pairs[stack.pop()] = match.start()
    return pairs


def closing_brace(text: str, start: int) -> int:
    """Position of the brace that closes the group whose content starts at `start`; -1 when none does."""
    return _closings(text).get(start - 1, -1)


def last_box(text: str) -> Box | None:
    """The last box that was opened, with the outermost complete box around it; None when there is none.

    An earlier complete box never stands in for a last one that is open.
    """
    openings = list(_OPENING.finditer(text))
    if not openings:
        return None
    closings = _closings(text)
    last = openings[-1]
    end = closings.get(last.end() - 1)
    if end is None:
        return Box(text[last.end() :].strip(), last.start(), len(text), is_closed=False)
    # The first box that encloses the last one is the outermost; the last one encloses itself.
    outer = next(box for box in openings if closings.get(box.end() - 1, -1) >= end)
    end = closings[outer.end() - 1]
    return Box(_unwrap(text[outer.end() : end]), outer.start(), end + 1, is_closed=True)


def _unwrap(content: str) -> str:
    r"""`\boxed{70}` within a box is 70."""
    content = content.strip()
    while (match := _OPENING.match(content)) and closing_brace(content, match.end()) == len(content) - 1:
        content = content[match.end() : -1].strip()
    return content
