"""Puts the table of a torture run into the page between its two marks.

python -m tests.torture.page build/torture/table.json docs/reliability.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.torture.record import markdown

BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"


def with_table(page: str, table: str) -> str:
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no marks for the table")
    return f"{head}{begin}\n{table}\n{end}{tail}"


def main() -> None:
    document, page = Path(sys.argv[1]), Path(sys.argv[2])
    table = markdown(json.loads(document.read_text(encoding="utf-8")))
    page.write_text(with_table(page.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
