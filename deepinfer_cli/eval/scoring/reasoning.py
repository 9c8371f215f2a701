"""Takes the reasoning out of an output. What a model thought is never its answer."""

from __future__ import annotations

import re
from typing import Final

# Opening and closing mark of each spelling that models in use here write.
_MARKS: Final = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
)
_BLANK: Final = "\n"


def _mask(text: str, start: int, end: int) -> str:
    return text[:start] + _BLANK * (end - start) + text[end:]


def strip_reasoning(text: str) -> str:
    """`text` with every reasoning block blanked out, at the same length.

    A closing mark without an opening one ends reasoning that the prompt opened: everything before it goes.
    An opening mark without a closing one was cut off in thought: everything after it goes.
    """
    for opening, closing in _MARKS:
        if opening not in text and closing not in text:
            continue
        depth, start = 0, 0
        for mark in re.finditer(f"{re.escape(opening)}|{re.escape(closing)}", text):
            if mark[0] == opening:
                if depth == 0:
                    start = mark.start()
                depth += 1
            elif depth == 0:
                text = _mask(text, 0, mark.end())
            else:
                depth -= 1
                if depth == 0:
                    text = _mask(text, start, mark.end())
        if depth:
            text = _mask(text, start, len(text))
    return text
