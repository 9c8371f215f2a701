"""Compressed outputs read back. They are made of many members (gzip) or frames (zstd), each ending on a whole
row; a crash can tear the last one only, which is then cut whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from deepinfer_cli.errors import InputError

SUFFIXES = (".gz", ".zst")
# Input handed to the decoder at a time: what it can expand to stays small.
_PIECE = {".gz": 4096, ".zst": 512}
_MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
_MAX_WINDOW = 1 << 27
_ZEROS = bytes(512)  # compressed rows hold no such run; blocks that never reached the disk do


class _Damaged(Exception):
    """The decoder cannot go on, although bytes are left."""


def is_archive(path: str) -> bool:
    return Path(path).suffix.lower() in SUFFIXES


def _decoder(suffix: str) -> Any:
    if suffix == ".gz":
        return zlib.decompressobj(wbits=31)
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()


def _errors() -> tuple[type[Exception], ...]:
    import zstandard

    return zlib.error, zstandard.ZstdError


def _decode(file: BinaryIO, suffix: str, end: int | None) -> Iterator[tuple[bytes, int]]:
    """(decoded piece, offset where the member it ends is over, or -1). Says nothing of a torn last member."""
    errors = _errors()
    size = _PIECE[suffix]
    position = 0
    member = None
    data = b""
    while True:
        if not data:
            data = file.read(size if end is None else min(size, end - position))
            position += len(data)
            if not data:
                return
        if member is None:
            member = _decoder(suffix)
        try:
            piece = member.decompress(data)
        except errors as error:
            raise _Damaged(str(error)) from None
        data = member.unused_data if member.eof else b""
        yield piece, position - len(data) if member.eof else -1
        if member.eof:
            member = None


def whole_members(file: BinaryIO, path: str, start: bytes) -> int:
    """Bytes up to the end of the last whole member. InputError when what follows was not left by a crash, or
    the first row does not begin with `start`."""
    suffix = Path(path).suffix.lower()
    end = 0
    head, last = b"", b"\n"
    magic = file.read(4).strip(b"\0")
    file.seek(0)
    try:
        if not _MAGIC[suffix].startswith(magic[: len(_MAGIC[suffix])]):
            raise _Damaged("it does not begin like an archive")
        for piece, member_end in _decode(file, suffix, None):
            last = piece[-1:] or last
            if len(head) < len(start):
                head = (head + piece)[: len(start)]
                if not start.startswith(head):
                    raise InputError(f"{path}: its first line is not a result row of deepinfer run")
            if member_end >= 0:
                end = member_end
                if last != b"\n":
                    raise InputError(
                        f"{path}: a compressed part ends inside a row, so this is no result file"
                    )
    except _Damaged as error:
        if not _holds_zeros(file, suffix, end):
            raise InputError(
                f"{path}: the compressed data behind byte {end:,} is damaged ({error})",
                "the file is left as it is",
            ) from None
    return end


def _holds_zeros(file: BinaryIO, suffix: str, start: int) -> bool:
    """Whether the bytes from `start` on are a torn member in which blocks are missing."""
    file.seek(start)
    last = start  # offset behind the last byte that is not zero
    position = start
    tail = b""
    while data := file.read(1 << 20):
        if _ZEROS in tail + data:
            return True
        position += len(data)
        tail = data[-len(_ZEROS) :]
        kept = len(data.rstrip(b"\0"))
        if kept:
            last = position - len(data) + kept
    file.seek(start)
    try:
        for _ in _decode(file, suffix, last - start):
            pass
    except _Damaged:
        return False
    return last < position


class DecodedRows:
    """The rows of the first `end` bytes, to be read like a file."""

    def __init__(self, file: BinaryIO, path: str, end: int) -> None:
        file.seek(0)
        self._pieces = _decode(file, Path(path).suffix.lower(), end)

    def read(self, _size: int) -> bytes:
        for piece, _ in self._pieces:
            if piece:
                return piece
        return b""
