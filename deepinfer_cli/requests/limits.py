"""What one row may hold beyond its bytes. A short text can decode to much more memory than it takes, and
each limit is far above what a model or a person has a use for (docs/explanation/security.md lists them)."""

from __future__ import annotations

import re
from typing import Final

from deepinfer_cli.requests.types import FieldError

MAX_VALUES: Final = 1 << 20  # in one field that is decoded: members of objects, elements of arrays
MAX_PROMPT_IDS: Final = 1 << 22  # in prompt_token_ids, or in a prompt of token ids
MAX_STOP_STRINGS: Final = 256
MAX_STOP_BYTES: Final = 4096  # of one stop string, UTF-8
MAX_STOP_BYTES_IN_ALL: Final = 16_384  # of a row; matching them takes some forty times as much memory
MAX_STOP_TOKEN_IDS: Final = 10_000
MAX_LOGIT_BIAS: Final = 10_000
MAX_SHOWN_CHARS: Final = 100  # of the row's own words in an error message

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


def check_num_values(raw: bytes, field: str) -> None:
    """`raw`: JSON that the scanner has accepted. Raises FieldError before so many values are made of it."""
    most = MAX_PROMPT_IDS if field.endswith(("prompt_token_ids", "prompt")) else MAX_VALUES
    if len(raw) <= most or raw[:1] not in b"[{":
        return
    if _separators(raw) <= most:
        return
    num_strings = (raw.count(b'"') - raw.count(b'\\"')) // 2  # keys and values
    if num_strings > most or _separators(_STRING.sub(b"", raw)) > most:
        raise FieldError("row_too_large", f"{field} has more than {most:,} values", field)


def _separators(raw: bytes) -> int:
    """At least as many as there are values."""
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def in_short(text: str) -> str:
    """The row's own words in an error message."""
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 3] + "..."
