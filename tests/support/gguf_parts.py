"""A GGUF file taken apart and put together again with other metadata or other tensor entries."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class Tensor:
    name: bytes
    dims: tuple[int, ...]  # innermost first
    kind: int  # ggml type
    offset: int


@dataclass(frozen=True)
class Parts:
    metadata: dict[bytes, bytes]  # key -> type and value as stored
    tensors: tuple[Tensor, ...]
    data: bytes
    version: int = 3
    counts: tuple[int, int] | None = None  # (tensors, keys) to claim in the header
    extra: list[tuple[bytes, bytes]] = field(default_factory=list)  # more metadata entries, doubled keys too

    def with_metadata(self, **changes: Any) -> Parts:
        """Keys with "." written "__". None removes a key; bytes stand as stored; other values are packed."""
        metadata = dict(self.metadata)
        for name, value in changes.items():
            key = name.replace("__", ".").encode()
            if value is None:
                metadata.pop(key, None)
            else:
                metadata[key] = value if isinstance(value, bytes) else packed(value)
        return replace(self, metadata=metadata)

    def write(self, path: Path) -> Path:
        entries = [*self.metadata.items(), *self.extra]
        num_tensors, num_keys = self.counts or (len(self.tensors), len(entries))
        out = b"GGUF" + struct.pack("<IQQ", self.version, num_tensors, num_keys)
        out += b"".join(_text(key) + value for key, value in entries)
        for t in self.tensors:
            out += _text(t.name) + struct.pack(f"<I{len(t.dims)}Q", len(t.dims), *t.dims)
            out += struct.pack("<IQ", t.kind, t.offset)
        path.write_bytes(out + bytes(-len(out) % 32) + self.data)
        return path


def _text(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def packed(value: Any) -> bytes:
    """Type and value: bool, int (as 64 bits), float (as 32), str, or a list of one of these."""
    if isinstance(value, list):
        items = [packed(item) for item in value] or [packed(0)]
        kind = items[0][:4]
        return (
            struct.pack("<I", _ARRAY) + kind + struct.pack("<Q", len(value)) + b"".join(i[4:] for i in items)
        )
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<IQ", 10, value) if value >= 0 else struct.pack("<Iq", 11, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<I", _STRING) + _text(value.encode())


def take_apart(path: Path) -> Parts:
    raw = path.read_bytes()
    num_tensors, num_keys = struct.unpack_from("<QQ", raw, 8)
    at = 24

    def text() -> bytes:
        nonlocal at
        size = struct.unpack_from("<Q", raw, at)[0]
        at += 8 + size
        return raw[at - size : at]

    def skip(kind: int) -> None:
        nonlocal at
        if kind == _STRING:
            text()
        elif kind == _ARRAY:
            inner, count = struct.unpack_from("<IQ", raw, at)
            at += 12
            if inner == _STRING:
                for _ in range(count):
                    text()
            else:
                at += _SIZES[inner] * count
        else:
            at += _SIZES[kind]

    metadata = {}
    for _ in range(num_keys):
        key, begin = text(), at
        at += 4
        skip(struct.unpack_from("<I", raw, begin)[0])
        metadata[key] = raw[begin:at]
    tensors = []
    for _ in range(num_tensors):
        name = text()
        rank = struct.unpack_from("<I", raw, at)[0]
        dims = struct.unpack_from(f"<{rank}Q", raw, at + 4)
        kind, offset = struct.unpack_from("<IQ", raw, at + 4 + 8 * rank)
        at += 16 + 8 * rank
        tensors.append(Tensor(name, dims, kind, offset))
    at += -at % 32
    return Parts(metadata, tuple(tensors), raw[at:])
