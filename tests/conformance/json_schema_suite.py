"""Walks the official JSON-Schema-Test-Suite: what is right, refused before the start, or refused on the way.

python -m tests.conformance.json_schema_suite        print the table of each draft
python -m tests.conformance.json_schema_suite write  replace tests/conformance/json_schema_suite.json
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepinfer_cli.constraints.types import ConstraintError
from tests.support.constraint_walk import compiled, walk

TABLE = Path(__file__).with_suffix(".json")
COLUMNS = ("tests", "right", "refused to compile", "valid refused", "wrong accepted")
DRAFTS = {"draft2020-12": {}, "draft7": {"$schema": "http://json-schema.org/draft-07/schema#"}}
SEPARATORS = ((",", ":"), (", ", ": "))


def suite_folder() -> Path | None:
    """A checkout named by JSON_SCHEMA_SUITE, or the one beside this checkout."""
    named = os.environ.get("JSON_SCHEMA_SUITE")
    above = Path(__file__).parents[3:5]
    places = (
        [Path(named)] if named else [folder / "shared" / "data" / "json-schema-suite" for folder in above]
    )
    return next((folder for folder in places if (folder / "tests").is_dir()), None)


def groups(folder: Path, draft: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((folder / "tests" / draft).glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            yield path.stem, group


def judge(template: Any, test: dict[str, Any]) -> str:
    texts = [json.dumps(test["data"], ensure_ascii=False, separators=pair) for pair in SEPARATORS]
    taken = [walk(template, text) == "accepted" for text in texts]
    if test["valid"]:
        return "right" if all(taken) else "valid refused"
    return "wrong accepted" if any(taken) else "right"


def run(folder: Path, draft: str, show: bool = False) -> dict[str, dict[str, int]]:
    """Keyword (a file of the suite) -> counts."""
    table: dict[str, dict[str, int]] = {}
    for keyword, group in groups(folder, draft):
        counts = table.setdefault(keyword, dict.fromkeys(COLUMNS, 0))
        schema = group["schema"]
        if isinstance(schema, dict):
            schema = {**DRAFTS[draft], **schema}
        tests = group["tests"]
        counts["tests"] += len(tests)
        try:
            template = compiled("json_schema", json.dumps(schema))
        except ConstraintError as refused:
            counts["refused to compile"] += len(tests)
            if show:
                print(f"{keyword}: {group['description']}: {refused.message[:120]} ({refused.pointer})")
            continue
        for test in tests:
            verdict = judge(template, test)
            counts[verdict] += 1
            if show and verdict != "right":
                name = f"{keyword}: {group['description']}: {test['description']}"
                print(f"{name}: {verdict} {test['data']!r:.60}")
    return table


def total(table: dict[str, dict[str, int]]) -> dict[str, int]:
    return {column: sum(counts[column] for counts in table.values()) for column in COLUMNS}


def main() -> None:
    folder = suite_folder()
    assert folder is not None, "set JSON_SCHEMA_SUITE to a checkout of the suite"
    tables = {draft: run(folder, draft, show="show" in sys.argv) for draft in DRAFTS}
    for draft, table in tables.items():
        print(draft, total(table))
    if "write" in sys.argv:
        TABLE.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
