"""Our decoding of every weight format against the gguf package, on bytes that quantisers never write too."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from deepinfer_cli import _native

BLOCK_FORMATS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
# Where each format keeps its halves: they must stay finite, everything else may be any byte.
HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def random_blocks(name: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    blocks = rng.integers(0, 256, size=(count, block_bytes), dtype=np.uint8)
    for at in HALVES[name]:
        scales = rng.normal(0, 0.01, size=count).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(count, 2)
    return blocks


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_block_formats_equal_gguf(name: str) -> None:
    blocks = random_blocks(name, 500)
    want = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name]).ravel()
    have = np.frombuffer(_native.dequantize(name, blocks.tobytes()), dtype=np.float32)
    np.testing.assert_array_equal(have, want)


def test_floats() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(size=1000).astype(np.float32)
    halves = values.astype(np.float16)
    assert _native.dequantize("F32", values.tobytes()) == values.tobytes()
    assert _native.dequantize("F16", halves.tobytes()) == halves.astype(np.float32).tobytes()
    brain = (values.view(np.uint32) >> 16).astype(np.uint16)
    want = (brain.astype(np.uint32) << 16).tobytes()
    assert _native.dequantize("BF16", brain.tobytes()) == want


@pytest.mark.parametrize(("dtype", "blocks"), [("Q4_0", b"x" * 17), ("I32", b"1234"), ("Q9_9", b"")])
def test_refusals(dtype: str, blocks: bytes) -> None:
    with pytest.raises(_native.NativeError):
        _native.dequantize(dtype, blocks)
