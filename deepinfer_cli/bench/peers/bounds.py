"""Operations and bytes of a workload, from the model's own shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepinfer_cli.bench.workloads import WORKLOADS
from deepinfer_cli.models.headers import open_model_file

_EMBEDDING = "token_embd.weight"
_HEAD = "output.weight"
_KV_BYTES = 2  # of a number in the cache, as it is by default


@dataclass(frozen=True, slots=True)
class Shapes:
    ops_per_token: float  # of the products of one token, without the head
    ops_per_logits: float
    weight_bytes: float  # that a step reads, head included
    kv_bytes_per_token: float
    attention_ops: float  # of one token per token that it sees


def read_shapes(path: Path) -> Shapes:
    """Of a GGUF file with one kind of layer."""
    file = open_model_file(path).native
    metadata: dict[str, Any] = file.metadata
    prefix = f"{metadata['general.architecture']}."
    layers = metadata[prefix + "block_count"]
    heads = metadata[prefix + "attention.head_count"]
    kv_heads = metadata[prefix + "attention.head_count_kv"]
    dim = metadata[prefix + "embedding_length"] // heads
    matrices = {name: (shape, size) for name, _, shape, size, _, _ in file.tensors if len(shape) == 2}
    head = matrices.pop(_HEAD, None) or matrices[_EMBEDDING]
    matrices.pop(_EMBEDDING)
    return Shapes(
        ops_per_token=2.0 * sum(n * k for (n, k), _ in matrices.values()),
        ops_per_logits=2.0 * head[0][0] * head[0][1],
        weight_bytes=float(head[1] + sum(size for _, size in matrices.values())),
        kv_bytes_per_token=2.0 * layers * kv_heads * dim * _KV_BYTES,
        attention_ops=4.0 * layers * heads * dim,
    )


def amounts(name: str, shapes: Shapes) -> tuple[float, float]:
    """(operations, bytes) of a step workload: every weight is read once a step, a cache once a token."""
    w = WORKLOADS[name]
    num_steps = 1 if w.is_prefill else w.num_tokens
    num_logits = 1 if w.is_prefill else w.total_tokens
    seen = w.batch * sum(range(w.context + 1, w.context + w.num_tokens + 1))  # tokens, summed over tokens
    ops = w.total_tokens * shapes.ops_per_token + num_logits * shapes.ops_per_logits
    ops += seen * shapes.attention_ops
    read = 0 if w.is_prefill else seen  # one prompt's keys and values stay in the caches of the CPU
    return ops, num_steps * shapes.weight_bytes + read * shapes.kv_bytes_per_token
