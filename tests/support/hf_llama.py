"""transformers' own llama on the dequantised weights of a GGUF file, in fp32: the reference for quality.

Weights go through the `gguf` package's dequantisation; nothing of this project takes part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

# GGUF name within a block -> transformers' name within a layer
_LAYER = {
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
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def _metadata(reader: gguf.GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()


def unpermute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """q and k rows from GGUF's adjacent rotary pairs to transformers' halves. weight: [heads * dim, in]"""
    rows, cols = weight.shape
    return weight.reshape(num_heads, rows // num_heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def load(path: Path) -> Any:
    """A transformers.LlamaForCausalLM in fp32, in evaluation mode."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = gguf.GGUFReader(path)
    get = lambda key: _metadata(reader, f"llama.{key}")  # noqa: E731
    tensors = {t.name.removesuffix(".weight"): t for t in reader.tensors}
    heads, kv_heads = get("attention.head_count"), get("attention.head_count_kv")
    embed = tensors["token_embd"]
    config = LlamaConfig(
        vocab_size=int(embed.shape[1]),
        hidden_size=get("embedding_length"),
        intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=get("rope.dimension_count") or get("embedding_length") // heads,
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": get("rope.freq_base")},
        max_position_embeddings=get("context_length"),
        tie_word_embeddings="output" not in tensors,
    )
    state = {}
    for name, tensor in tensors.items():
        weight = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if name.startswith("blk."):
            _, layer, part = name.split(".")
            if part in ("attn_q", "attn_k"):
                weight = unpermute(weight, heads if part == "attn_q" else kv_heads)
            full = f"model.layers.{layer}.{_LAYER[part]}.weight"
        else:
            full = f"{_TOP[name]}.weight"
        state[full] = torch.from_numpy(np.ascontiguousarray(weight))
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = LlamaForCausalLM(config)
    model.load_state_dict(state)
    return model.eval()
