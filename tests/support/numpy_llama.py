"""A llama forward pass in plain numpy, float64, read beside the definition: the reference for small models.

Weights come from the files themselves, dequantised by the `gguf` package or read as safetensors, so that
nothing of the engine takes part. Keys and values can be rounded as a cache does, and the inputs of matrices
as a reduced precision does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from tests.support.tiny_models import TinyLlama, rope_frequencies

_GGUF_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}


@dataclass(frozen=True)
class Weights:
    tensors: dict[str, np.ndarray]  # transformers' names, float64
    adjacent_pairs: bool  # GGUF rotates dims (2i, 2i+1); transformers (i, i + dim/2)


def read_gguf(path: Path) -> Weights:
    tensors = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        name = tensor.name.removesuffix(".weight")
        prefix = ""
        if name.startswith("blk."):
            _, layer, name = name.split(".")
            prefix = f"model.layers.{layer}."
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        tensors[prefix + _GGUF_NAMES[name]] = values.astype(np.float64)
    return Weights(tensors, adjacent_pairs=True)


def read_safetensors(folder: Path) -> Weights:
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        blob = file.read_bytes()
        size = int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8 : 8 + size])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            data = blob[begin:end]
            if entry["dtype"] == "BF16":
                values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
            tensors[name.removesuffix(".weight")] = values.reshape(entry["shape"]).astype(np.float64)
    return Weights(tensors, adjacent_pairs=False)


def _rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def _rotate(x: np.ndarray, angles: np.ndarray, adjacent_pairs: bool) -> np.ndarray:
    """x: [tokens, heads, dim]; angles: [tokens, dim / 2]"""
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if adjacent_pairs else (x[..., :half], x[..., half:])
    first, second = a * cos - b * sin, a * sin + b * cos
    out = np.empty_like(x)
    if adjacent_pairs:
        out[..., 0::2], out[..., 1::2] = first, second
    else:
        out[..., :half], out[..., half:] = first, second
    return out


def forward(
    model: TinyLlama,
    weights: Weights,
    tokens: list[int],
    store: Callable[[np.ndarray], np.ndarray] = lambda values: values,
    activate: Callable[[np.ndarray], np.ndarray] = lambda values: values,
) -> np.ndarray:
    """[tokens, vocab] logits.

    store: what the cache keeps of keys and values [tokens, heads, dim]; activate: what a matrix product
    sees of its inputs [tokens, in_features].
    """
    w = weights.tensors
    num_tokens, group = len(tokens), model.num_heads // model.num_kv_heads
    angles = np.arange(num_tokens)[:, None] * rope_frequencies(model)[None, :]
    causal = np.triu(np.full((num_tokens, num_tokens), -np.inf), 1)
    x = w["model.embed_tokens"][np.array(tokens)]
    for i in range(model.num_layers):
        layer = f"model.layers.{i}."
        h = activate(_rms_norm(x, w[layer + "input_layernorm"], model.norm_eps))
        q = (h @ w[layer + "self_attn.q_proj"].T).reshape(num_tokens, model.num_heads, model.head_dim)
        k = (h @ w[layer + "self_attn.k_proj"].T).reshape(num_tokens, model.num_kv_heads, model.head_dim)
        v = (h @ w[layer + "self_attn.v_proj"].T).reshape(num_tokens, model.num_kv_heads, model.head_dim)
        q = _rotate(q, angles, weights.adjacent_pairs)
        k, v = store(_rotate(k, angles, weights.adjacent_pairs)), store(v)
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) * model.head_dim**-0.5 + causal
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", scores, v).reshape(num_tokens, -1)
        x = x + activate(mixed) @ w[layer + "self_attn.o_proj"].T
        h = activate(_rms_norm(x, w[layer + "post_attention_layernorm"], model.norm_eps))
        gate, up = h @ w[layer + "mlp.gate_proj"].T, h @ w[layer + "mlp.up_proj"].T
        x = x + activate(gate / (1 + np.exp(-gate)) * up) @ w[layer + "mlp.down_proj"].T
    x = activate(_rms_norm(x, w["model.norm"], model.norm_eps))
    return x @ w.get("lm_head", w["model.embed_tokens"]).T


def to_float16(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float64)


def to_int8_blocks(values: np.ndarray) -> np.ndarray:
    """Signed 8-bit integers with one scale per 32 values along the last axis, scaled back."""
    blocks = values.astype(np.float32).reshape(*values.shape[:-1], -1, 32)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    quants = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0))
    return (quants * scale).reshape(values.shape).astype(np.float64)
