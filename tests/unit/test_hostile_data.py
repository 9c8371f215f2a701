"""Data sets of evaluations that are no data sets: one sentence each."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from deepinfer_cli.errors import InputError
from deepinfer_cli.eval.data import files


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("deep.jsonl", b"[" * 100_000, "not JSON"),
        ("deep.json", b'{"a":' * 100_000, "not JSON"),
        ("digits.json", b"[" + b"9" * 5000 + b"]", "not JSON"),
        ("bomb.jsonl.gz", gzip.compress(bytes(1 << 24)), "is compressed"),
        ("bytes.csv", b"\xff\xfe", "not UTF-8 at byte 0"),
        ("wide.csv", b'a,b\n"' + b"x" * 100 + b'",2,3\n', "more fields than the header has"),
        ("open.csv", b'a\n"x', "not CSV"),
        ("list.jsonl", b"[1]\n", "a record is a JSON object"),
    ],
)
def test_refused(name: str, data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError, match=said) as refused:
        files.read_records(path)
    assert refused.value.exit_code == 2 and len(refused.value.message) < 600


def test_an_endless_file_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 1 << 20)
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="more than 1,048,576 bytes"):
        files.read_records(tmp_path / "zero.jsonl")
