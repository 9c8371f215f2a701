"""Whatever stands in `id`, `metadata` and passed columns comes back equal, as valid JSON on one line."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepinfer_cli.requests.parser import RowParser
from deepinfer_cli.requests.scan import IdTable
from deepinfer_cli.requests.types import RawLine, RequestRow, RowRules
from deepinfer_cli.results.assemble import NativeRows
from deepinfer_cli.results.types import OpenRow, RowStyle
from tests.support.runs import parse_rows
from tests.unit.results.test_rows import FakeFinished, FakeSample

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and bool(a == b)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXT | st.integers(-(10**30), 10**30), VALUES, VALUES, st.booleans(), TEXT)
def test_echo(row_id: Any, metadata: Any, column: Any, ascii_only: bool, answer: str) -> None:
    row = {"id": row_id, "prompt": "x", "metadata": metadata, "my column": column}
    line = json.dumps(row, ensure_ascii=ascii_only).encode()
    parser = RowParser(RowRules(passthrough=("my column",)), IdTable(), IdTable(), lambda key, text: None)
    parsed = parser.parse(RawLine(0, 1, 0, line, len(line)))
    assert isinstance(parsed, RequestRow), parsed
    shape = NativeRows(RowStyle(("f",), "00", "m"), [])
    text = shape.ok(OpenRow(parsed.identity, seed=1), FakeFinished([FakeSample(text=answer)]))
    (done,) = parse_rows(text.encode())
    assert same(done["id"], row_id)
    assert same(done["metadata"], metadata)
    assert same(done["columns"], {"my column": column})
    assert done["outputs"][0]["text"] == answer
