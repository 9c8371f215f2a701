"""What a model must read and compute per step, from its own shapes, and the least time that takes.

Bound of a step: the larger of the time to read its bytes from memory at the measured rate, and the time to do
its operations at the measured peak of their arithmetic. Bytes: every packed weight once, and the cached keys
and values of every sequence. Operations: two per weight and token, head once per token that needs logits, and
attention over the context.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deepinfer_cli.bench.timeline import RequestTrace

ARITHMETICS: Final = ("int8", "bf16", "fp32")
_EMBEDDINGS: Final = ("token_embd.weight", "model.embed_tokens.weight")
_HEADS: Final = ("output.weight", "lm_head.weight")


@dataclass(frozen=True, slots=True)
class Matrix:
    """One weight of the model that activations are multiplied with."""

    name: str
    dtype: str  # as stored in the file
    n: int  # outputs
    k: int  # inputs
    is_head: bool = False  # computed only for tokens whose logits are wanted


@dataclass(frozen=True, slots=True)
class ModelWork:
    """The sizes of a model that its speed depends on."""

    matrices: tuple[Matrix, ...]
    weight_bytes: int  # packed in memory, the embedding table not counted: a step reads all of it once
    kv_bytes_per_token: float  # of all layers
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    precision: str

    def ops_per_token(self) -> Counter[str]:
        """Operations of one token's products, without the head, by arithmetic."""
        ops: Counter[str] = Counter()
        for m in self.matrices:
            if not m.is_head:
                ops[arithmetic_of(m.dtype, self.precision)] += 2 * m.n * m.k
        return ops

    def ops_per_logits(self) -> Counter[str]:
        """Operations of one token's logits, by arithmetic."""
        ops: Counter[str] = Counter()
        for m in self.matrices:
            if m.is_head:
                ops[arithmetic_of(m.dtype, self.precision)] += 2 * m.n * m.k
        return ops

    def attention_ops(self, context: float) -> float:
        """Operations of one token that sees `context` tokens, all layers; in fp32."""
        return 4.0 * self.num_layers * self.num_heads * self.head_dim * context

    def arithmetics(self) -> tuple[str, ...]:
        used = {arithmetic_of(m.dtype, self.precision) for m in self.matrices} | {"fp32"}
        return tuple(a for a in ARITHMETICS if a in used)


def arithmetic_of(dtype: str, precision: str) -> str:
    """How products with a weight of this stored type are computed (kernels/matrix.h: arithmetic_for)."""
    if precision in ("precise", "fast"):
        return "int8" if dtype.startswith("Q") else "bf16"
    return precision


def model_work(
    model: Any, executor_info: Mapping[str, Any], groups: Sequence[Any], precision: str
) -> ModelWork | None:
    """None for a model without weights, such as the built-in fake one."""
    file = getattr(model, "file", None)
    if file is None or not executor_info:
        return None
    matrices = [m for m in (_matrix(t) for t in file.tensors) if m is not None]
    embedding = next((t for t in file.tensors if t.name in _EMBEDDINGS), None)
    if embedding is not None and not any(m.is_head for m in matrices):
        n, k = embedding.shape
        matrices.append(Matrix("head (tied embedding)", embedding.dtype, n, k, is_head=True))
    sizes = _attention_sizes(file.metadata)
    if sizes is None or not matrices:
        return None
    kv = math.fsum(g.block_bytes / g.block_tokens for g in groups if g.kind == "paged")
    layers = int(executor_info["num_layers"])
    return ModelWork(tuple(matrices), int(executor_info["weight_bytes"]), kv, layers, *sizes, precision)


def _matrix(tensor: Any) -> Matrix | None:
    if len(tensor.shape) != 2 or tensor.name in _EMBEDDINGS:
        return None
    n, k = tensor.shape
    return Matrix(tensor.name, tensor.dtype, n, k, is_head=tensor.name in _HEADS)


def _attention_sizes(metadata: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """(heads, key-value heads, size of a head) from GGUF keys or config.json."""
    name = metadata.get("general.architecture")
    keys = {
        "heads": (f"{name}.attention.head_count", "num_attention_heads"),
        "kv_heads": (f"{name}.attention.head_count_kv", "num_key_value_heads"),
        "dim": (f"{name}.attention.key_length", "head_dim"),
        "width": (f"{name}.embedding_length", "hidden_size"),
    }
    found = {what: next((metadata[k] for k in names if k in metadata), None) for what, names in keys.items()}
    heads, width = found["heads"], found["width"]
    if not isinstance(heads, int) or not isinstance(width, int):
        return None
    return heads, int(found["kv_heads"] or heads), int(found["dim"] or width // heads)


@dataclass(frozen=True, slots=True)
class Limits:
    """The machine's own limits, measured beside a repetition, with as many threads as the engine had."""

    dram_gbps: float
    peak_gops: Mapping[str, float]  # by arithmetic; 0 = not known

    def as_json(self) -> dict[str, Any]:
        return {"dram_gbps": self.dram_gbps, **{f"{a}_gops": v or None for a, v in self.peak_gops.items()}}


def least_seconds(work: ModelWork, limits: Limits, traces: Sequence[RequestTrace]) -> dict[str, float | None]:
    """Bytes and operations of what these requests did, and the least time in which this machine could have
    done it in the steps that were taken.

    Steps are the distinct times at which tokens were made. A prompt's operations are counted in the step that
    made its first token; its bytes are those of that step, so that chunks before it cost no bytes here.
    """
    if not all(limits.peak_gops.get(a) for a in work.arithmetics()) or limits.dram_gbps <= 0:
        return dict.fromkeys(("bytes", "ops", "least_seconds", "memory_bound_share"))
    gops = limits.peak_gops
    per_token, per_logits = work.ops_per_token(), work.ops_per_logits()
    token_s = sum(ops / gops[a] for a, ops in per_token.items()) * 1e-9
    logits_s = sum(ops / gops[a] for a, ops in per_logits.items()) * 1e-9
    steps: dict[float, list[float]] = {}  # time -> [tokens computed, logit rows, tokens seen, read]
    for trace in traces:
        computed = trace.num_prompt_tokens - trace.num_cached_tokens
        for i, time in enumerate(trace.token_times):
            step = steps.setdefault(time, [0.0, 0.0, 0.0, 0.0])
            context = trace.num_prompt_tokens + i
            step[0] += computed if i == 0 else 1
            step[1] += 1
            # Token number t of the prompt sees t tokens; a decoded one sees all before it and itself.
            step[2] += _sum_of_contexts(trace.num_cached_tokens, context) if i == 0 else context
            step[3] += trace.num_cached_tokens if i == 0 else context
    total_bytes = total_ops = seconds = memory_seconds = 0.0
    for tokens, rows, seen, read in steps.values():
        step_bytes = work.weight_bytes + read * work.kv_bytes_per_token
        attention = work.attention_ops(seen)
        read_s = step_bytes / limits.dram_gbps * 1e-9
        compute_s = tokens * token_s + rows * logits_s + attention / gops["fp32"] * 1e-9
        total_bytes += step_bytes
        total_ops += tokens * sum(per_token.values()) + rows * sum(per_logits.values()) + attention
        seconds += max(read_s, compute_s)
        memory_seconds += read_s if read_s > compute_s else 0.0
    share = memory_seconds / seconds if seconds else None
    return {"bytes": total_bytes, "ops": total_ops, "least_seconds": seconds, "memory_bound_share": share}


def _sum_of_contexts(first: int, last: int) -> float:
    """Sum of t over first < t <= last."""
    return (last * (last + 1) - first * (first + 1)) / 2
