"""safetensors headers read from any source of bytes, by the same rules as GGUF ones."""

from __future__ import annotations

import json
import struct
from typing import Any

from deepinfer_cli.models.gguf_header import HeaderError, HeaderTensor, ReadAt

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
# Published type name -> (our name, bits of an element)
_TYPES = {
    "BOOL": ("Bool", 8),
    "U8": ("U8", 8),
    "I8": ("I8", 8),
    "I16": ("I16", 16),
    "U16": ("U16", 16),
    "I32": ("I32", 32),
    "U32": ("U32", 32),
    "I64": ("I64", 64),
    "U64": ("U64", 64),
    "F4": ("F4", 4),
    "F8_E4M3": ("F8_E4M3", 8),
    "F8_E5M2": ("F8_E5M2", 8),
    "F8_E8M0": ("F8_E8M0", 8),
    "F16": ("F16", 16),
    "BF16": ("BF16", 16),
    "F32": ("F32", 32),
    "F64": ("F64", 64),
}


def read_safetensors_header(read_at: ReadAt, first_piece: int = 1 << 19) -> tuple[HeaderTensor, ...]:
    """Tensors of one file. Raises HeaderError when the bytes are no safetensors header."""
    start = read_at(0, first_piece)
    if len(start) < 8:
        raise HeaderError("not a safetensors file: it is shorter than 8 bytes")
    size = struct.unpack_from("<Q", start)[0]
    if size > MAX_HEADER_BYTES:
        raise HeaderError(f"not a safetensors file: its header would have {size} bytes")
    data = start[8 : 8 + size]
    if len(data) < size:
        data += read_at(8 + len(data), size - len(data))
    if len(data) < size:
        raise HeaderError(f"header ends early: {len(data)} of {size} bytes")
    try:
        entries = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"header is not JSON: {error}") from error
    if not isinstance(entries, dict):
        raise HeaderError("header is not a JSON object")
    return tuple(_tensor(name, entry) for name, entry in entries.items() if name != "__metadata__")


def _tensor(name: str, entry: Any) -> HeaderTensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        dims = tuple(int(size) for size in shape)
        num_bytes = int(end) - int(begin)
    except (KeyError, TypeError, ValueError) as error:
        raise HeaderError(f"tensor {name!r} is not described as it should be") from error
    known, bits = _TYPES.get(dtype, (str(dtype), 0))
    num_elems = 1
    for size in dims:
        num_elems *= size
    if bits and num_elems * bits // 8 != num_bytes:
        raise HeaderError(f"tensor {name!r}: {dtype} {list(dims)} does not have {num_bytes} bytes")
    return HeaderTensor(name, known, dims, num_bytes)
