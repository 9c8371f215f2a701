"""The exact bytes of output rows, in both shapes. UPDATE_GOLDEN=1 rewrites them; look at the difference.

Greedy and without scores, so that no machine's rounding is in them. The hashes of settings change with every
new setting and are masked.
"""

from __future__ import annotations

import os
import re

import pytest

from tests.support.runs import CASES, ROOT, run_fake

FILES = (
    "01_plain",
    "04_blank_lines",
    "05_unicode_separators",
    "08_missing_ids",
    "09_big_numbers",
    "19_openai_envelope",
)
_HASHES = re.compile(rb'("(?:settings|request_hash|request_id)":"|batch_req_|cmpl-)[0-9a-f]+')


@pytest.mark.parametrize("shape", ["native", "openai"])
def test_rows(shape: str) -> None:
    output = b""
    for name in FILES:
        done = run_fake(
            "--temperature", "0", "--output-format", shape, "--passthrough", "all", CASES / f"{name}.jsonl"
        )
        output += _HASHES.sub(rb"\1HASH", done.stdout)
    golden = ROOT / "tests" / "golden" / f"rows_{shape}.jsonl"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_bytes(output)
    assert golden.read_bytes() == output
