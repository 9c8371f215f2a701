"""GGUF headers read from any source of bytes: a local file, or a remote one through range requests.

The native core has its own strict reader for files that are about to run. This one answers questions
about files that are not here yet, so it reads no further than the tensor table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# ReadAt(offset, size) -> up to `size` bytes, fewer only at the end of the file.
ReadAt = Callable[[int, int], bytes]

MAGIC = b"GGUF"
MAX_KEYS = 100_000
MAX_TENSORS = 1_000_000
MAX_HEADER_BYTES = 1 << 28  # a 129k-token vocabulary with its merges takes about 8 MB
MAX_ARRAY = 1 << 24
MAX_NAME_BYTES = 1 << 16

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

# ggml type number -> (name, elements per block, bytes per block)
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}


class HeaderError(ValueError):
    """The bytes are no header of this format; the message says where and why."""


@dataclass(frozen=True, slots=True)
class HeaderTensor:
    name: str
    dtype: str  # "Q4_1", "BF16", or "type 77" when the number is unknown
    shape: tuple[int, ...]  # outermost first
    num_bytes: int  # 0 when the type is unknown


@dataclass(frozen=True, slots=True)
class GgufHeader:
    version: int
    metadata: dict[str, Any]
    tensors: tuple[HeaderTensor, ...]
    num_header_bytes: int  # magic, metadata and tensor table


class _Cursor:
    """Sequential reads over a ReadAt, in growing pieces so that a remote header costs few requests."""

    def __init__(self, read_at: ReadAt, first_piece: int) -> None:
        self._read_at = read_at
        self._buffer = b""
        self._piece = first_piece
        self.position = 0

    def need(self, size: int) -> int:
        """Makes `size` more bytes available and returns where they start in the buffer."""
        if size > MAX_HEADER_BYTES or self.position + size > MAX_HEADER_BYTES:
            raise HeaderError(f"header is longer than {MAX_HEADER_BYTES} bytes at byte {self.position}")
        while len(self._buffer) - self.position < size:
            want = max(self._piece, size - (len(self._buffer) - self.position))
            got = self._read_at(len(self._buffer), want)
            if not got:
                raise HeaderError(f"header ends early: wanted {size} bytes at byte {self.position}")
            self._buffer += got
            self._piece = min(self._piece * 2, 1 << 23)
        start = self.position
        self.position += size
        return start

    def unpack(self, layout: str) -> Any:
        start = self.need(struct.calcsize("<" + layout))
        return struct.unpack_from("<" + layout, self._buffer, start)[0]

    def array(self, layout: str, count: int) -> list[Any]:
        start = self.need(struct.calcsize("<" + layout) * count)
        return list(struct.unpack_from(f"<{count}{layout}", self._buffer, start))

    def raw(self, size: int) -> bytes:
        start = self.need(size)
        return self._buffer[start : start + size]

    def string(self, limit: int = MAX_HEADER_BYTES) -> str:
        size = self.unpack("Q")
        if size > limit:
            raise HeaderError(f"string of {size} bytes at byte {self.position}, at most {limit} are allowed")
        return self.raw(size).decode("utf-8", "replace")

    def strings(self, count: int) -> list[str]:
        """A vocabulary is 100,000 short strings: one tight loop over what is buffered."""
        out: list[str] = []
        size_of = struct.Struct("<Q").unpack_from
        for _ in range(count):
            start = self.position
            if len(self._buffer) - start < 8:
                self.need(8)
                self.position = start
            size = size_of(self._buffer, start)[0]
            if len(self._buffer) - start < 8 + size:
                self.need(8 + size)
            self.position = start + 8 + size
            out.append(self._buffer[start + 8 : self.position].decode("utf-8", "replace"))
        return out


def _value(cursor: _Cursor, kind: int, depth: int = 0) -> Any:
    if kind in _SCALARS:
        return cursor.unpack(_SCALARS[kind])
    if kind == _STRING:
        return cursor.string()
    if kind == _ARRAY and depth < 4:
        element, count = cursor.unpack("I"), cursor.unpack("Q")
        if count > MAX_ARRAY:
            raise HeaderError(f"array of {count} values at byte {cursor.position}")
        if element in _SCALARS:
            return cursor.array(_SCALARS[element], count)
        if element == _STRING:
            return cursor.strings(count)
        return [_value(cursor, element, depth + 1) for _ in range(count)]
    raise HeaderError(f"unknown metadata type {kind} at byte {cursor.position}")


def _tensor(cursor: _Cursor) -> HeaderTensor:
    name = cursor.string(MAX_NAME_BYTES)
    rank = cursor.unpack("I")
    if rank > 8:
        raise HeaderError(f"tensor {name!r} has {rank} dimensions")
    shape = tuple(reversed(cursor.array("Q", rank)))
    kind, _offset = cursor.unpack("I"), cursor.unpack("Q")
    if kind not in TENSOR_TYPES:
        return HeaderTensor(name, f"type {kind}", shape, 0)
    dtype, block_elems, block_bytes = TENSOR_TYPES[kind]
    num_elems = 1
    for size in shape:
        num_elems *= size
    return HeaderTensor(name, dtype, shape, num_elems // block_elems * block_bytes)


def read_gguf_header(read_at: ReadAt, first_piece: int = 1 << 20) -> GgufHeader:
    """Raises HeaderError when the bytes are not a GGUF header of version 2 or 3."""
    cursor = _Cursor(read_at, first_piece)
    magic = cursor.raw(4)
    if magic != MAGIC:
        raise HeaderError(f"not a GGUF file: it starts with {magic!r}")
    version = cursor.unpack("I")
    if version not in (2, 3):
        raise HeaderError(f"GGUF version {version}; versions 2 and 3 can be read")
    num_tensors, num_keys = cursor.unpack("Q"), cursor.unpack("Q")
    if num_keys > MAX_KEYS or num_tensors > MAX_TENSORS:
        raise HeaderError(f"{num_keys} metadata keys and {num_tensors} tensors are too many")
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = cursor.string(MAX_NAME_BYTES)
        if key in metadata:
            raise HeaderError(f"metadata key {key!r} appears twice")
        metadata[key] = _value(cursor, cursor.unpack("I"))
    tensors = tuple(_tensor(cursor) for _ in range(num_tensors))
    return GgufHeader(version, metadata, tensors, cursor.position)
