"""Tiny llama models, made from a seed, in every weight format and both file formats.

The same kinds of layers as a real model with tiny widths, and a byte-level tokenizer that spells any text.
Nothing is downloaded. A model's files depend on its TinyLlama and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

from tests.support import byte_tokenizer

GGUF_FORMATS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
SAFETENSORS_FORMATS = ("F32", "F16", "BF16")
_FLOATS = {"F32": np.float32, "F16": np.float16}


@dataclass(frozen=True)
class RopeScaling:
    kind: str  # "linear" or "llama3"
    factor: float = 4.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 64


@dataclass(frozen=True)
class TinyLlama:
    """Shape of a model. K-quant blocks span 256 inputs, so the defaults are multiples of that."""

    num_layers: int = 2
    hidden: int = 256
    ffn: int = 512
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    vocab_size: int = byte_tokenizer.VOCAB_SIZE
    max_positions: int = 1024
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    tied: bool = True
    scaling: RopeScaling | None = None
    seed: int = 1

    def shapes(self) -> dict[str, tuple[int, int]]:
        """transformers' name of every matrix -> [out_features, in_features]."""
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes = {"model.embed_tokens": (self.vocab_size, self.hidden)}
        if not self.tied:
            shapes["lm_head"] = (self.vocab_size, self.hidden)
        for i in range(self.num_layers):
            layer = f"model.layers.{i}."
            shapes |= {
                layer + "self_attn.q_proj": (q, self.hidden),
                layer + "self_attn.k_proj": (kv, self.hidden),
                layer + "self_attn.v_proj": (kv, self.hidden),
                layer + "self_attn.o_proj": (self.hidden, q),
                layer + "mlp.gate_proj": (self.ffn, self.hidden),
                layer + "mlp.up_proj": (self.ffn, self.hidden),
                layer + "mlp.down_proj": (self.hidden, self.ffn),
            }
        return shapes

    def norms(self) -> list[str]:
        per_layer = [
            f"model.layers.{i}.{part}"
            for i in range(self.num_layers)
            for part in ("input_layernorm", "post_attention_layernorm")
        ]
        return [*per_layer, "model.norm"]


def weights(model: TinyLlama) -> dict[str, np.ndarray]:
    """fp32 weights by transformers' names, without the ".weight"."""
    rng = np.random.default_rng(model.seed)
    result = {}
    for name, (rows, cols) in model.shapes().items():
        result[name] = rng.normal(0.0, cols**-0.5, (rows, cols)).astype(np.float32)
    # Attention that is neither flat nor a single spike needs scores of a few units.
    for name in result:
        if name.endswith(("q_proj", "k_proj")):
            result[name] *= 1.7
    result["model.embed_tokens"] *= 4.0 if model.tied else 16.0
    if not model.tied:
        result["lm_head"] *= 2.0
    for name in model.norms():
        result[name] = rng.uniform(0.6, 1.4, model.hidden).astype(np.float32)
    return result


def permute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of q and k from transformers' halves to GGUF's adjacent rotary pairs. weight: [heads * dim, in]"""
    rows, cols = weight.shape
    return weight.reshape(num_heads, 2, rows // num_heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def random_k_blocks(fmt: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Bytes of a Q4_K, Q5_K or Q6_K matrix whose values spread like the other formats': [rows, bytes].

    Any quants and sub-scales form a valid block; only the fp16 scales are chosen.
    """
    rows, cols = shape
    num_blocks = rows * cols // 256
    spread = rng.uniform(0.7, 1.4, (num_blocks, 1)) * cols**-0.5

    def half(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float16).view(np.uint8)

    def noise(num_bytes: int) -> np.ndarray:
        return rng.integers(0, 256, (num_blocks, num_bytes), dtype=np.uint8)

    if fmt == "Q4_K":  # d, dmin, 12 bytes of 6-bit scales and minima, 128 of quants 0..15
        scale = spread / (32 * 4.6)
        parts = [half(scale), half(scale * 7.5), noise(12), noise(128)]
    elif fmt == "Q5_K":  # the same with 32 bytes of fifth bits: quants 0..31
        scale = spread / (32 * 9.2)
        parts = [half(scale), half(scale * 15.5), noise(12), noise(32), noise(128)]
    elif fmt == "Q6_K":  # low and high bits, 16 signed sub-scales, d last: quants -32..31
        parts = [noise(128), noise(64), noise(16), half(spread / (74 * 18.5))]
    else:
        raise ValueError(fmt)
    return np.concatenate(parts, axis=1).reshape(rows, -1)


def _gguf_tensor(fmt: str, weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if fmt in _FLOATS:
        return weight.astype(_FLOATS[fmt])
    if fmt.endswith("_K"):
        return random_k_blocks(fmt, weight.shape, rng)
    return gguf.quantize(weight, gguf.GGMLQuantizationType[fmt])


def rope_frequencies(model: TinyLlama) -> np.ndarray:
    """[head_dim / 2] radians per position, in float64, with scaling applied."""
    frequencies = model.rope_theta ** (-np.arange(0, model.head_dim, 2) / model.head_dim)
    return frequencies / rope_divisors(model)


def rope_divisors(model: TinyLlama) -> np.ndarray:
    """[head_dim / 2] what each rotary frequency is divided by."""
    half = model.head_dim // 2
    scaling = model.scaling
    if scaling is None:
        return np.ones(half)
    if scaling.kind == "linear":
        return np.full(half, scaling.factor)
    wavelength = 2 * np.pi * model.rope_theta ** (2 * np.arange(half) / model.head_dim)
    low = scaling.original_positions / scaling.low_freq_factor
    high = scaling.original_positions / scaling.high_freq_factor
    blend = (scaling.original_positions / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    between = 1 / ((1 - blend) / scaling.factor + blend)
    return np.where(wavelength < high, 1.0, np.where(wavelength > low, scaling.factor, between))


def write_gguf(model: TinyLlama, path: Path, fmt: str, *, embed_fmt: str | None = None) -> Path:
    """`fmt` for the matrices; `embed_fmt` for embedding and head (default the same); norms are F32."""
    rng = np.random.default_rng(model.seed + 1000)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name(f"tiny-llama-{fmt}")
    writer.add_context_length(model.max_positions)
    writer.add_embedding_length(model.hidden)
    writer.add_block_count(model.num_layers)
    writer.add_feed_forward_length(model.ffn)
    writer.add_head_count(model.num_heads)
    writer.add_head_count_kv(model.num_kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_rope_dimension_count(model.head_dim)
    writer.add_rope_freq_base(model.rope_theta)
    writer.add_layer_norm_rms_eps(model.norm_eps)
    writer.add_vocab_size(model.vocab_size)
    byte_tokenizer.add_to_gguf(writer)
    if model.scaling is not None and model.scaling.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(model.scaling.factor)
    if model.scaling is not None and model.scaling.kind == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(model).astype(np.float32))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.num_layers)
    for name, weight in weights(model).items():
        target = names.get_name(name + ".weight", try_suffixes=(".weight",))
        assert target is not None, name
        if weight.ndim == 1:
            writer.add_tensor(target, weight)
            continue
        if name.endswith("q_proj"):
            weight = permute(weight, model.num_heads)
        elif name.endswith("k_proj"):
            weight = permute(weight, model.num_kv_heads)
        used = (embed_fmt or fmt) if name in ("model.embed_tokens", "lm_head") else fmt
        data = _gguf_tensor(used, weight, rng)
        writer.add_tensor(target, data, raw_dtype=gguf.GGMLQuantizationType[used])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def config_json(model: TinyLlama, fmt: str) -> dict[str, object]:
    scaling = None
    if model.scaling is not None:
        scaling = {"rope_type": model.scaling.kind, "factor": model.scaling.factor}
        if model.scaling.kind == "llama3":
            scaling |= {
                "low_freq_factor": model.scaling.low_freq_factor,
                "high_freq_factor": model.scaling.high_freq_factor,
                "original_max_position_embeddings": model.scaling.original_positions,
            }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm_eps,
        "rope_theta": model.rope_theta,
        "rope_scaling": scaling,
        "max_position_embeddings": model.max_positions,
        "tie_word_embeddings": model.tied,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": byte_tokenizer.BOS,
        "eos_token_id": byte_tokenizer.EOS,
        "torch_dtype": {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[fmt],
    }


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """fp32 values rounded to nearest even bfloat16, still fp32."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


def _save_bf16(tensors: dict[str, np.ndarray], path: Path) -> None:
    """numpy has no bfloat16, so the container is written by hand: 8 bytes of length, a header, the data."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    chunks, offset = [], 0
    for name, weight in sorted(tensors.items()):
        data = (round_to_bf16(weight).view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": list(weight.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(chunks))


def write_safetensors(model: TinyLlama, folder: Path, fmt: str, *, num_shards: int = 1) -> Path:
    """A folder as the hub serves it: config.json, tokenizer files, one or several weight files."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"{name}.weight": weight for name, weight in weights(model).items()}
    names = sorted(tensors)
    shards = [names[i::num_shards] for i in range(num_shards)]
    weight_map = {}
    for index, members in enumerate(shards):
        file = (
            "model.safetensors"
            if num_shards == 1
            else f"model-{index + 1:05d}-of-{num_shards:05d}.safetensors"
        )
        part = {name: tensors[name] for name in members}
        if fmt == "BF16":
            _save_bf16(part, folder / file)
        else:
            save_file({n: w.astype(_FLOATS[fmt]) for n, w in part.items()}, folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys(members, file)
    if num_shards > 1:
        total = sum(w.size * (4 if fmt == "F32" else 2) for w in tensors.values())
        index_json = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index_json))
    (folder / "config.json").write_text(json.dumps(config_json(model, fmt), indent=1))
    byte_tokenizer.write_files(folder)
    return folder


def cached(model: TinyLlama, root: Path, kind: str, fmt: str, **options: object) -> Path:
    """The model's path under `root`, written on first use. kind: "gguf" or "safetensors"."""
    identity = json.dumps([asdict(model), kind, fmt, sorted(options.items())])
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    if kind == "gguf":
        path = root / f"tiny-{fmt}-{key}.gguf"
        return path if path.exists() else write_gguf(model, path, fmt, **options)  # type: ignore[arg-type]
    folder = root / f"tiny-{fmt}-{key}"
    if (folder / "config.json").exists():
        return folder
    return write_safetensors(model, folder, fmt, **options)  # type: ignore[arg-type]
