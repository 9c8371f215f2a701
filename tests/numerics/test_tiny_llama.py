"""Every weight format, shape and precision of tiny models against a plain float64 forward pass.

Errors are root mean squares in units of the reference logits' standard deviation. Each bound is two to three
times the largest seen when it was set, so that a wrong rounding is found and not only a wrong formula.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from deepinfer_cli import _native
from tests.support import numpy_llama, tiny_models
from tests.support.native_engine import NativeEngine, Setup
from tests.support.quality import kl_divergence
from tests.support.tiny_models import GGUF_FORMATS, SAFETENSORS_FORMATS, RopeScaling, TinyLlama

NUM_TOKENS = 150  # past the original 64 positions of the scaled models, and past four cache blocks
FP32_RMS = 1.5e-5  # fp32 sums of 256 to 512 products, two layers
BLOCK_FORMATS = [fmt for fmt in GGUF_FORMATS if fmt not in ("F32", "F16", "BF16")]


def tokens_for(model: TinyLlama, num_tokens: int = NUM_TOKENS) -> list[int]:
    return [int(t) for t in np.random.default_rng(7).integers(0, model.vocab_size, num_tokens)]


@functools.cache
def reference(model: TinyLlama, path: Path) -> np.ndarray:
    """[NUM_TOKENS - 1, vocab] float64."""
    read = numpy_llama.read_safetensors if path.is_dir() else numpy_llama.read_gguf
    return numpy_llama.forward(model, read(path), tokens_for(model))[:-1]


def engine_logits(model: TinyLlama, path: Path, setup: Setup, num_tokens: int = NUM_TOKENS) -> np.ndarray:
    """[num_tokens - 1, vocab] fp32: what follows each token but the last."""
    with NativeEngine(path, setup) as engine:
        (rows,) = engine.score([(tokens_for(model, num_tokens), 1, num_tokens)])
    return rows


def error(expected: np.ndarray, found: np.ndarray) -> float:
    """Root-mean-square difference, in standard deviations of `expected`."""
    return float(np.sqrt(((found - expected) ** 2).mean()) / expected.std())


def check(model: TinyLlama, path: Path, setup: Setup, bound: float) -> None:
    expected, found = reference(model, path), engine_logits(model, path, setup)
    seen, kl = error(expected, found), kl_divergence(expected, found).mean()
    print(f"\n{path.name} {setup.precision} {setup.kv_dtype}: rms {seen:.1e} sd, mean KL {kl:.1e}")
    assert seen <= bound


@pytest.mark.parametrize("fmt", GGUF_FORMATS)
def test_gguf_in_fp32(tiny_root, fmt):
    model = TinyLlama()
    path = tiny_models.cached(model, tiny_root, "gguf", fmt)
    check(model, path, Setup("fp32", "f32"), FP32_RMS)


@pytest.mark.parametrize("fmt", SAFETENSORS_FORMATS)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_safetensors_in_fp32(tiny_root, fmt, tied):
    model = TinyLlama(tied=tied)
    path = tiny_models.cached(model, tiny_root, "safetensors", fmt, num_shards=1 if tied else 3)
    check(model, path, Setup("fp32", "f32"), FP32_RMS)


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
@pytest.mark.parametrize("scaling", [RopeScaling("linear"), RopeScaling("llama3")], ids=lambda s: s.kind)
def test_rope_scaling(tiny_root, kind, scaling):
    model = TinyLlama(scaling=scaling)
    path = tiny_models.cached(model, tiny_root, kind, "F32")
    check(model, path, Setup("fp32", "f32"), FP32_RMS)


@pytest.mark.parametrize(
    "model",
    [
        TinyLlama(head_dim=32, num_heads=8, num_kv_heads=8),
        TinyLlama(head_dim=128, num_heads=2, num_kv_heads=1),
        TinyLlama(head_dim=96, num_heads=4, num_kv_heads=2),  # wider than hidden / heads
        TinyLlama(head_dim=80, num_heads=2, num_kv_heads=2),
        TinyLlama(head_dim=64, num_heads=9, num_kv_heads=3, hidden=576, ffn=1536, num_layers=1),
        TinyLlama(hidden=96, ffn=160, head_dim=32, num_heads=3, num_kv_heads=1, rope_theta=500000.0),
        TinyLlama(norm_eps=1e-3, num_layers=3),
    ],
    ids=lambda m: f"{m.hidden}-{m.num_heads}x{m.head_dim}-{m.num_kv_heads}",
)
@pytest.mark.parametrize("fmt", ["F32", "Q8_0"])
def test_shapes(tiny_root, model, fmt):
    path = tiny_models.cached(model, tiny_root, "gguf", fmt)
    check(model, path, Setup("fp32", "f32"), FP32_RMS)


@pytest.mark.parametrize("embed_fmt", ["F16", "Q8_0", "Q6_K"])
def test_embedding_and_head_of_another_format(tiny_root, embed_fmt):
    """What published files do: matrices of 4 bits with an embedding of 8, tied or not."""
    for tied in (True, False):
        model = TinyLlama(tied=tied)
        path = tiny_models.cached(model, tiny_root, "gguf", "Q4_1", embed_fmt=embed_fmt)
        check(model, path, Setup("fp32", "f32"), FP32_RMS)


@pytest.mark.parametrize("kv_dtype", ["f32", "f16", "bf16", "int8"])
def test_cache_types(tiny_root, kv_dtype):
    model = TinyLlama()
    path = tiny_models.cached(model, tiny_root, "gguf", "F32")
    check(model, path, Setup("fp32", kv_dtype), CACHE_RMS[kv_dtype])


CACHE_RMS = {"f32": FP32_RMS, "f16": 2e-3, "bf16": 2e-2, "int8": 6e-2}


@pytest.mark.parametrize("fmt", GGUF_FORMATS)
def test_bf16(tiny_root, fmt):
    model = TinyLlama()
    path = tiny_models.cached(model, tiny_root, "gguf", fmt)
    check(model, path, Setup("bf16", "f16"), 4e-2)


@pytest.mark.parametrize("fmt", BLOCK_FORMATS)
def test_fast_rounds_activations_to_8_bits_and_no_further(tiny_root, fmt):
    """Beside a forward pass with that rounding; a value at the border of two steps may fall either way."""
    model = TinyLlama()
    path = tiny_models.cached(model, tiny_root, "gguf", fmt)
    rounded = numpy_llama.forward(
        model,
        numpy_llama.read_gguf(path),
        tokens_for(model),
        store=numpy_llama.to_float16,
        activate=numpy_llama.to_int8_blocks,
    )[:-1]
    found = engine_logits(model, path, Setup("fast", "f16"))
    expected = reference(model, path)
    allowed, seen, to_rounded = error(expected, rounded), error(expected, found), error(rounded, found)
    print(f"\n{path.name}: rms {seen:.1e} sd; of rounding itself {allowed:.1e}; to that {to_rounded:.1e}")
    assert seen <= 1.1 * allowed
    assert to_rounded <= 0.7 * allowed


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fast", "precise"])
@pytest.mark.parametrize("fmt", GGUF_FORMATS)
def test_every_isa_level_gives_the_same_bits(tiny_root, fmt, precision):
    model = TinyLlama()
    path = tiny_models.cached(model, tiny_root, "gguf", fmt)
    levels = _native.cpu_isa_levels()
    assert "scalar" in levels
    expected = engine_logits(model, path, Setup(precision, "f16", isa="scalar", num_threads=1), 40)
    for index, isa in enumerate(levels):
        setup = Setup(
            precision, "f16", isa=isa, num_threads=1 + index % 3, prefill_chunk=(16, 512)[index % 2]
        )
        found = engine_logits(model, path, setup, 40)
        assert found.tobytes() == expected.tobytes(), isa


@pytest.mark.oracle
@pytest.mark.parametrize("fmt", SAFETENSORS_FORMATS)
@pytest.mark.parametrize("scaling", [None, RopeScaling("linear"), RopeScaling("llama3")])
def test_transformers_agrees(tiny_root, fmt, scaling):
    """A second judge that shares no line with the first."""
    import torch
    from transformers import AutoModelForCausalLM

    model = TinyLlama(scaling=scaling, tied=scaling is None)
    path = tiny_models.cached(model, tiny_root, "safetensors", fmt)
    network = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = network(torch.tensor([tokens_for(model)])).logits[0, :-1].double().numpy()
    seen = error(expected, engine_logits(model, path, Setup("fp32", "f32")))
    print(f"\n{path.name}: rms {seen:.1e} sd")
    assert seen <= FP32_RMS
