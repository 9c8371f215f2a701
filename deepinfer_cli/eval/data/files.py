"""Records of a data file: JSON Lines, JSON, CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import hashlib
import importlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepinfer_cli.errors import InputError, in_short

FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")
MAX_FILE_BYTES = 1 << 30
_WRAPPERS = ("rows", "data", "records", "problems")  # keys under which a JSON document may keep its list


def read_records(path: Path) -> tuple[list[dict[str, Any]], str]:
    """(records in file order, sha256 of the file). InputError names file, place and what is wrong."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise InputError(
            f"{path} has more than {MAX_FILE_BYTES:,} bytes", "a data set is held in memory; take a part"
        )
    if data[:2] == b"\x1f\x8b" or data[:4] == b"\x28\xb5\x2f\xfd":
        raise InputError(f"{path} is compressed", "unpack it first: gzip -d or zstd -d")
    digest = hashlib.sha256(data).hexdigest()
    if data[:4] == b"PAR1" or path.suffix.lower() == ".parquet":
        return _parquet(path, data), digest
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start:,}") from None
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _csv(path, text), digest
    if suffix == ".json" or (suffix not in FORMATS and text.lstrip()[:1] == "["):
        return _json(path, text), digest
    return list(_json_lines(path, text)), digest


def _json_lines(path: Path, text: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number}: not JSON: {in_short(str(error))}") from None
        if not isinstance(value, dict):
            raise InputError(f"{path}:{number}: a record is a JSON object, found {type(value).__name__}")
        yield value


def _json(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: not JSON: {in_short(str(error))}", "one object per line is .jsonl"
        ) from None
    if isinstance(value, dict):
        value = next((value[key] for key in _WRAPPERS if isinstance(value.get(key), list)), value)
    if not isinstance(value, list):
        raise InputError(f"{path}: expected a list of objects, or one under {', '.join(_WRAPPERS)}")
    # The hub's viewer wraps each record: {"row_idx": 0, "row": {...}}.
    records = [r["row"] if isinstance(r, dict) and isinstance(r.get("row"), dict) else r for r in value]
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict):
            raise InputError(f"{path}: item {number} is no object")
    return records


def _csv(path: Path, text: str) -> list[dict[str, Any]]:
    csv.field_size_limit(1 << 27)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    records = []
    try:
        for record in reader:
            if None in record:
                raise InputError(f"{path}:{reader.line_num}: more fields than the header has")
            records.append({key: value for key, value in record.items() if value is not None})
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not CSV: {error}") from None
    return records


def _parquet(path: Path, data: bytes) -> list[dict[str, Any]]:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise InputError(
            f"{path} is a Parquet file, and pyarrow is not installed",
            "pip install 'deepinfer-cli[eval]', or convert it to JSONL, JSON or CSV and use --data",
        ) from None
    try:
        records: list[dict[str, Any]] = parquet.read_table(io.BytesIO(data)).to_pylist()
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from None
    return records
