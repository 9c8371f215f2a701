"""Incremental text against Python's own UTF-8 decoder."""

import random

import pytest

from deepinfer_cli import _native


def random_bytes(rng: random.Random) -> bytes:
    pieces = [
        b"a",
        "é".encode(),
        "€".encode(),
        "🔥".encode(),
        b"\xe2\x82",
        b"\xf0\x9f",
        b"\xff",
        b"\xed\xa0\x80",
    ]
    out = b"".join(rng.choice([*pieces, bytes([rng.randrange(256)])]) for _ in range(rng.randrange(12)))
    return out[: rng.randrange(len(out) + 1)]


def test_text_equals_python_decoding_with_replacement() -> None:
    rng = random.Random(1)
    for _ in range(20_000):
        data = random_bytes(rng)
        state = _native.TextState([], include_stop=False)
        at = 0
        while at < len(data):
            step = rng.randrange(1, 5)
            assert state.push(data[at : at + step]) is False
            at += step
        state.finish()
        assert state.text == data.decode("utf-8", "replace")


def test_stop_strings_cut_the_text() -> None:
    state = _native.TextState(["gam", "beta gamma"], include_stop=False)
    assert not state.push(b"alpha beta ga")
    assert state.push(b"mma delta")
    assert (state.text, state.matched_stop) == ("alpha beta ", "gam")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(_native.NativeError, match="empty"):
        _native.TextState([""], include_stop=False)


def test_token_table() -> None:
    table = _native.TokenTable([b"a", b"<s>", b"\xff"], [False, True, False])
    assert len(table) == 3
    assert [table.bytes(i) for i in range(-1, 4)] == [b"", b"a", b"", b"\xff", b""]
    assert table.is_special(1) and not table.is_special(2)
