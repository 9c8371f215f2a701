"""Rows nobody wrote on purpose: mutated, enormous, nested, absurd. Each gets its row; the run goes on."""

from __future__ import annotations

import json
import random
import resource
import subprocess
from pathlib import Path

import pytest

from tests.support.runs import CASES, command, environment, parse_rows, run_fake, write_rows

SEED_FILES = sorted(CASES.glob("[01]*.jsonl")) + sorted(CASES.glob("2[01]*.jsonl"))
INTERESTING = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"1e999",
)


def mutants(count: int, seed: int) -> list[bytes]:
    """Lines of the cases with bytes changed, doubled, cut or spliced."""
    choose = random.Random(seed)
    lines = [line for path in SEED_FILES for line in path.read_bytes().split(b"\n") if line.strip()]
    made = []
    for _ in range(count):
        line = bytearray(choose.choice(lines))
        for _ in range(choose.randint(1, 4)):
            at = choose.randrange(len(line) + 1)
            kind = choose.randrange(4)
            if kind == 0 and at < len(line):
                line[at] = choose.randrange(256)
            elif kind == 1:
                line[at:at] = choose.choice(INTERESTING)
            elif kind == 2:
                del line[at : at + choose.randint(1, 20)]
            else:
                other = choose.choice(lines)
                cut = choose.randrange(len(other))
                line[at:] = other[cut:]
        made.append(bytes(line).replace(b"\n", b" "))
    return [line for line in made if line.strip(b" \t\r")]


@pytest.mark.parametrize("seed", range(3))
def test_every_mutant_gets_its_row(seed: int) -> None:
    lines = mutants(2000, seed)
    done = run_fake("--set", "max_tokens_cap=4", "--max-model-len", "256", "-", stdin=b"\n".join(lines))
    assert done.code == 3
    assert [row["index"] for row in done.rows] == list(range(len(lines)))


def test_absurd_rows(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"prompt": "x", "n": 10000, "max_tokens": 1},
        {"prompt": "x" * 100_000},
        {"prompt": "x", "stop": ["y" * 4096] * 256, "max_tokens": 2},
        {"prompt": "x", "logit_bias": {str(i): 1 for i in range(20_000)}},
        {"prompt": "x", "stop_token_ids": list(range(100_000))},
        {"prompt_token_ids": [0] * 50_000},
        {"prompt_token_ids": [10**9]},
        {"messages": [{"role": "user", "content": "x"}] * 5000, "max_tokens": 1},
        {"prompt": "x", "id": "i" * 1_000_000, "max_tokens": 1},
        {"prompt": "x", "metadata": {"k" * 1000: "v" * 1_000_000}, "max_tokens": 1},
        {"prompt": "x", "temperature": 1e-300, "max_tokens": 1},
        {"prompt": "x", "temperature": 100, "top_p": 1e-30, "min_p": 1, "max_tokens": 1},
        {"prompt": "the last one", "max_tokens": 1},
    ]
    done = run_fake(write_rows(tmp_path / "rows.jsonl", rows))
    verdicts = [row["status"] for row in done.rows]
    wanted = ["ok", "error", "ok", "error", "error", "error", "error", "error", "ok", "ok", "ok", "ok", "ok"]
    assert verdicts == wanted
    assert len(done.rows[0]["outputs"]) == 10000
    assert done.rows[9]["metadata"] == rows[9]["metadata"]


def test_a_row_over_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        file.write(b'{"prompt": "first", "max_tokens": 1}\n{"prompt": "')
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n{"prompt": "last", "max_tokens": 1}\n')
    done = run_fake(path)
    assert [row["status"] for row in done.rows] == ["ok", "error", "ok"]
    error = done.rows[1]["error"]
    assert error["code"] == "row_too_large" and error["line"] == 2
    assert run_fake("--max-row-bytes", "1KiB", path).rows[1]["error"]["code"] == "row_too_large"


def test_deep_nesting() -> None:
    deep = b'{"prompt": "x", "metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    done = run_fake("-", stdin=deep + b'\n{"prompt": "y", "max_tokens": 1}\n')
    assert [row["status"] for row in done.rows] == ["error", "ok"]
    assert done.rows[0]["error"]["code"] == "too_deep"


def test_numbers_beyond_python_s_limits() -> None:
    digits = b"9" * 300  # a double still reaches this far; longer numbers are refused as they are read
    rows = (
        b'{"id": %s, "prompt": "x", "max_tokens": 1, "metadata": {"n": %s}}\n' % (digits, digits)
        + b'{"prompt": "x", "max_tokens": %s}\n' % digits
        + b'{"prompt": "x", "seed": -%s}\n' % digits
        + b'{"prompt": "x", "temperature": %s}\n' % digits
        + b'{"prompt": "x", "seed": %s}\n' % (b"9" * 10_000)
    )
    done = run_fake("-", stdin=rows)
    lines = done.stdout.split(b"\n")
    assert lines[0].startswith(b'{"id":' + digits)
    assert b'"metadata":{"n": ' + digits in lines[0]
    codes = [row["error"]["code"] for row in done.rows[1:]]
    assert codes == ["bad_param", "bad_param", "bad_param", "bad_json"]


def test_bombs(tmp_path: Path) -> None:
    """256 MiB of one line in a few KiB of gzip or zstd cost time, but no memory."""
    import zlib

    import zstandard

    block = b"x" * (1 << 20)
    gz = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(gz.compress(block) for _ in range(256)) + gz.flush()
    zst = zstandard.ZstdCompressor().compressobj()
    other = b"".join(zst.compress(block) for _ in range(256)) + zst.flush()
    for data in (bomb, other):
        path = tmp_path / "bomb"
        path.write_bytes(data)
        done = run_fake(path, str(CASES / "02_bom.jsonl"))
        assert [row["status"] for row in done.rows] == ["error", "ok", "ok"]
        assert json.dumps(done.rows[0]["error"]).count("row_too_large") == 1


MIB = 1 << 20
# About 10 MB each: rows of which a short text makes much memory. [what is wrong, code, row]
LARGE = {
    "text": ("context_overflow", b'{"prompt": "' + b"a b " * (2 * MIB) + b'"}'),
    "chat": (
        "context_overflow",
        b'{"messages": [{"role": "user", "content": "' + b"a b " * (2 * MIB) + b'"}]}',
    ),
    "ids": ("row_too_large", b'{"prompt_token_ids": [' + b"0," * (5 * MIB) + b"0]}"),
    "messages": (
        "row_too_large",
        b'{"messages": ['
        + b'{"role":"user","content":""},' * (350 * 1024)
        + b'{"role":"user","content":""}]}',
    ),
    "tools": (
        "row_too_large",
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [' + b"{}," * (3 * MIB) + b"{}]}",
    ),
    "keys": ("row_too_large", b"{" + b",".join(b'"q%x":0' % i for i in range(MIB)) + b', "prompt": "x"}'),
    "stop ids": ("row_too_large", b'{"prompt": "x", "stop_token_ids": [' + b"1," * (4 * MIB) + b"1]}"),
    "stops": ("bad_param", json.dumps({"prompt": "x", "stop": [f"s{i}" for i in range(100_000)]}).encode()),
    "long stops": (
        "bad_param",
        json.dumps({"prompt": "x", "stop": [f"{i}" * 1000 for i in range(99)]}).encode(),
    ),
    "biases": (
        "bad_param",
        json.dumps({"prompt": "x", "logit_bias": {str(i): 1 for i in range(300_000)}}).encode(),
    ),
    "scores": ("bad_param", b'{"prompt": "x", "n": 10000, "max_tokens": 4000, "top_logprobs": 100}'),
    "outputs": ("bad_param", b'{"prompt": "x", "n": 10000, "max_tokens": 4000}'),
    "key": ("", b'{"prompt": "x", "max_tokens": 1, "temperature' + b" " * (10 * MIB) + b'": 0}'),
    "metadata": ("", b'{"prompt": "x", "max_tokens": 1, "metadata": [' + b"[]," * (3 * MIB) + b"[]]}"),
    "id": ("", b'{"prompt": "x", "max_tokens": 1, "id": "' + b"i" * (10 * MIB) + b'"}'),
}


@pytest.mark.slow
def test_rows_that_decode_to_much_more_than_their_text() -> None:
    """Each becomes an error row, or an ok one, in a process that may not take 300 MB; neighbours stay."""
    neighbour = b'{"prompt": "n", "seed": 1, "max_tokens": 2}'
    lines = [neighbour, *(line for _, line in LARGE.values()), neighbour]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (300 * MIB, 300 * MIB))

    done = subprocess.run(
        command("run", "--model", "fake", "-"),
        input=b"\n".join(lines),
        capture_output=True,
        env=environment(),
        preexec_fn=limited,
        timeout=600,
    )
    assert len(done.stderr) < 20_000, done.stderr[:2000]
    rows = parse_rows(done.stdout)
    found = {
        name: (row["error"]["code"] if row["status"] == "error" else "")
        for name, row in zip(LARGE, rows[1:-1], strict=True)
    }
    assert found == {name: code for name, (code, _) in LARGE.items()}
    assert [row["status"] for row in (rows[0], rows[-1])] == ["ok", "ok"]
    assert rows[0]["outputs"] == rows[-1]["outputs"]
    assert all(len(row["error"]["message"]) < 400 for row in rows if row["status"] == "error")
