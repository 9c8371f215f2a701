"""The row scanner against Python's own decoder, and the id table against a dict."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli import _native


def strict_loads(line: bytes) -> Any:
    """json.loads with what it lets through refused: equal keys, NaN, numbers beyond a double."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(items)
        if len(out) != len(items):
            raise ValueError("equal keys")
        return out

    def number(text: str) -> float:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError("range")
        return value

    def integer(text: str) -> int:
        number(text)
        return int(text)

    def constant(text: str) -> Any:
        raise ValueError(text)

    return json.loads(
        line.decode("utf-8"),
        object_pairs_hook=pairs,
        parse_float=number,
        parse_int=integer,
        parse_constant=constant,
    )


def accepted_by_python(line: bytes) -> bool:
    try:
        return isinstance(strict_loads(line), dict)
    except (ValueError, RecursionError):
        return False


def random_value(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(9 if depth < 5 else 6)
    if kind == 0:
        return rng.choice(
            ["true", "false", "null", "0", "-0", "12", "-3.5", "1e5", "2E-3", "1e308", "0.0e+00"]
        )
    if kind <= 2:
        return json.dumps(
            "".join(rng.choice('ab"\\/\n\té€🔥\u2028 ') for _ in range(rng.randrange(12))),
            ensure_ascii=rng.random() < 0.5,
        )
    if kind <= 5:
        return str(rng.randrange(-(10**20), 10**20))
    space = rng.choice(["", " ", "\t", " \r "])
    items = [random_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind == 6:
        return "[" + f"{space},{space}".join(items) + space + "]"
    keys = [json.dumps(rng.choice("abcdefgh") + rng.choice('é\n"xyz')) for _ in items]
    return "{" + f",{space}".join(f"{k}{space}:{v}" for k, v in zip(keys, items, strict=True)) + "}"


def random_line(rng: random.Random) -> bytes:
    keys = rng.sample(["id", "prompt", "metadata", "seed", "ünï", "a\\u0062"], rng.randrange(5))
    line = bytearray(("{" + ",".join(f'"{k}": {random_value(rng, 1)}' for k in keys) + "}").encode())
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        at = rng.randrange(len(line) + 1)
        edit = rng.randrange(3)
        if edit == 0 and at < len(line):
            line[at] = rng.choice(b'{}[]":,\\ 0e-\x00\xff\xc3x')
        elif edit == 1:
            del line[at : at + rng.randrange(1, 4)]
        else:
            line[at:at] = rng.choice(
                [b'"', b",", b"\\u12", b"\xed\xa0\x80", b"1", b"[", b"}", b"NaN", b"9" * 310]
            )
    return bytes(line)


def test_verdicts_agree_with_a_strict_decoder() -> None:
    rng = random.Random(7)
    accepted = 0
    for _ in range(30_000):
        line = random_line(rng)
        scan = _native.scan_row(line)
        assert (scan.error is None) == accepted_by_python(line), (line, scan.error, scan.message)
        if scan.error is not None:
            assert scan.message and 1 <= scan.column <= len(line) + 1 and scan.fields == []
            continue
        accepted += 1
        row = strict_loads(line)
        assert [name for name, _, _ in scan.fields] == list(row)
        for name, start, end in scan.fields:
            assert json.loads(line[start:end]) == row[name]
    assert 8_000 < accepted < 25_000


def test_lone_surrogates_agree_with_the_decoded_text() -> None:
    rng = random.Random(8)
    seen = set()
    for _ in range(5_000):
        parts = [
            rng.choice(["\\ud83d", "\\udd25", "\\uDC00", "x", "\\u00e9", "\\\\", "🔥"]) for _ in range(4)
        ]
        line = ('{"a":"' + "".join(parts) + '"}').encode()
        text = json.loads(line)["a"]
        lone = any(0xD800 <= ord(c) < 0xE000 for c in text)
        assert _native.scan_row(line).has_lone_surrogate == lone
        seen.add(lone)
    assert seen == {True, False}


def test_the_row_of_an_error_is_told() -> None:
    scan = _native.scan_row(b'{"id": "n1", "temperature": NaN}')
    assert (scan.error, scan.column, scan.message) == ("bad_json", 29, "NaN is not JSON")
    scan = _native.scan_row(b'{"id": 1, "id": 2}')
    assert (scan.error, scan.column) == ("bad_json", 11)
    assert '"id"' in scan.message
    assert _native.scan_row(b"[" * 200).error == "too_deep"
    assert _native.scan_row(b"[" * 3, max_depth=2).error == "too_deep"


def test_id_table_agrees_with_a_dict_across_spills(tmp_path: Path) -> None:
    rng = random.Random(9)
    table = _native.IdTable(max_memory_bytes=1 << 16, spill_dir=str(tmp_path))
    first: dict[bytes, int] = {}
    for value in range(40_000):
        key = str(rng.randrange(30_000)).encode()
        wanted = first.get(key, -1)
        first.setdefault(key, value)
        assert table.insert(key, value) == wanted
    assert table.memory_bytes <= 1 << 16
    assert table.spilled_bytes > 0
    assert list(tmp_path.iterdir()) == []  # the files have no name


def test_id_table_counts() -> None:
    table = _native.IdTable()
    assert [table.increment(b"k") for _ in range(3)] == [0, 1, 2]


def test_id_table_names_a_folder_it_cannot_use(tmp_path: Path) -> None:
    table = _native.IdTable(max_memory_bytes=1 << 16, spill_dir=str(tmp_path / "missing"))
    with pytest.raises(_native.NativeError) as caught:
        for value in range(10_000):
            table.insert(str(value).encode(), value)
    message, code = caught.value.args
    assert code == "resource" and "missing" in message
