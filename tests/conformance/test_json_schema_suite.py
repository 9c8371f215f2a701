"""The official suite of JSON Schema: nothing wrong is let through, and no keyword gets worse."""

from __future__ import annotations

import json

import pytest

from tests.conformance.json_schema_suite import DRAFTS, TABLE, run, suite_folder, total

FOLDER = suite_folder()
AT_LEAST_RIGHT = {"draft2020-12": 570, "draft7": 520}
MOST_REFUSED_ON_THE_WAY = 25


@pytest.mark.skipif(FOLDER is None, reason="no checkout of the suite; name one in JSON_SCHEMA_SUITE")
@pytest.mark.parametrize("draft", DRAFTS)
def test_the_suite(draft: str) -> None:
    assert FOLDER is not None
    table = run(FOLDER, draft)
    counts = total(table)
    assert counts["wrong accepted"] == 0
    assert counts["right"] >= AT_LEAST_RIGHT[draft]
    assert counts["valid refused"] <= MOST_REFUSED_ON_THE_WAY
    for keyword, before in json.loads(TABLE.read_text())[draft].items():
        now = table[keyword]
        assert now["right"] >= before["right"], keyword
        assert now["valid refused"] <= before["valid refused"], keyword
        assert now["refused to compile"] <= before["refused to compile"], keyword


def test_the_table_is_whole() -> None:
    for draft, least in AT_LEAST_RIGHT.items():
        counts = total(json.loads(TABLE.read_text())[draft])
        assert counts["wrong accepted"] == 0 and counts["right"] >= least
        assert counts["tests"] == sum(n for column, n in counts.items() if column != "tests")
