"""gzip and zstd as streams of bounded pieces: members and frames one after another, found by magic bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = tuple(bytes([0x50 + i]) + b"\x2a\x4d\x18" for i in range(16))
MAGIC_BYTES = 4  # enough to tell them apart

# No piece handed on is much larger than this, whatever the ratio: zip bombs cost time, not memory.
_PIECE = 1 << 20
# The zstd decoder cannot be told to stop early; one block expands 3 bytes to at most 128 KiB.
_ZSTD_INPUT = 512
_ZSTD_MAX_WINDOW = 1 << 27


class TruncatedArchive(Exception):
    """The compressed stream ends inside a member or frame, or its bytes are damaged."""


class Decompressor(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces. Raises TruncatedArchive on damage, after what could be decoded."""
        ...

    def close(self) -> None:
        """Call at the end of the file: raises TruncatedArchive inside a member."""
        ...


class Plain:
    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data

    def close(self) -> None:
        pass


class Gzip:
    def __init__(self) -> None:
        self._member: zlib._Decompress | None = None
        self._pending = b""  # less than a magic number between members

    def feed(self, data: bytes) -> Iterator[bytes]:
        data, self._pending = self._pending + data, b""
        while data:
            if self._member is None:
                data = data.lstrip(b"\0")  # padding after a member, as tape tools write it
                if len(data) < 2:
                    self._pending = data
                    return
                if not data.startswith(GZIP_MAGIC):
                    raise TruncatedArchive("there are bytes after the end of the gzip data")
                self._member = zlib.decompressobj(wbits=31)
            try:
                piece = self._member.decompress(data, _PIECE)
            except zlib.error as error:
                raise TruncatedArchive(f"the gzip data is damaged ({error})") from None
            if piece:
                yield piece
            if self._member.eof:
                data, self._member = self._member.unused_data, None
            else:
                data = self._member.unconsumed_tail

    def close(self) -> None:
        if self._member is not None or self._pending:
            raise TruncatedArchive("the gzip data ends early")


class Zstd:
    def __init__(self) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
        self._frame: zstandard.ZstdDecompressionObj | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_INPUT):
            yield from self._feed_some(data[start : start + _ZSTD_INPUT])

    def _feed_some(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._frame is None:
                self._frame = self._context.decompressobj()
            try:
                piece = self._frame.decompress(data)
            except self._error as error:
                raise TruncatedArchive(f"the zstd data is damaged ({error})") from None
            if piece:
                yield piece
            if not self._frame.eof:
                return
            data, self._frame = self._frame.unused_data, None

    def close(self) -> None:
        if self._frame is not None:
            raise TruncatedArchive("the zstd data ends early")


def decompressor_for(head: bytes) -> Decompressor:
    """By the first bytes of the file, never by its name."""
    if head.startswith(GZIP_MAGIC):
        return Gzip()
    if head.startswith(ZSTD_MAGIC) or head[:4] in _ZSTD_SKIPPABLE:
        return Zstd()
    return Plain()
