"""Lists of texts, of which the answer is one."""

from __future__ import annotations

import json
from typing import Final

from deepinfer_cli.constraints.charset import spelled
from deepinfer_cli.constraints.types import ConstraintError

MAX_CHOICES: Final = 10_000
MAX_BYTES: Final = 1 << 20  # of the list


def read_choices(source: str) -> list[str]:
    """The choices of a constraint's source, each once. Raises ConstraintError."""
    if len(source) > MAX_BYTES:
        raise ConstraintError("bad_schema", f"the choices have more than {MAX_BYTES:,} bytes")
    found = json.loads(source)
    if not isinstance(found, list) or not found or not all(isinstance(text, str) for text in found):
        raise ConstraintError("bad_param", "choice must be a list of at least one string")
    if len(found) > MAX_CHOICES:
        raise ConstraintError(
            "bad_schema", f"there are {len(found):,} choices; at most {MAX_CHOICES:,} are taken"
        )
    for i, text in enumerate(found):
        if "\0" in text:
            raise ConstraintError("bad_schema", f"choice {i} has a NUL", f"/{i}")
        if any(0xD800 <= ord(char) <= 0xDFFF for char in text):
            raise ConstraintError("bad_schema", f"choice {i} has a lone surrogate", f"/{i}")
    return list(dict.fromkeys(found))


def _quoted(text: str) -> str:
    return "".join(
        char if char.isascii() and char.isalnum() else spelled([(ord(char),) * 2]) for char in text
    )


def lark(source: str) -> str:
    """One terminal for all: a choice may be the beginning of another."""
    return f"start: TEXT\nTEXT: /(?:{'|'.join(map(_quoted, read_choices(source)))})/"
