"""Can this engine, on this machine, run these files? Answered from headers, before they are fetched.

Picking the right model in the wrong package is the most expensive mistake there is: the download takes
hours, and only then does it turn out that a tensor type or a part of the model is not what was needed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepinfer_cli.models.families import Family, family_of_config, family_of_gguf, supported_text
from deepinfer_cli.models.gguf_header import HeaderTensor, ReadAt, read_gguf_header
from deepinfer_cli.models.safetensors_header import read_safetensors_header

WORKING_BYTES = 256 << 20  # buffers, token tables and Python, beside weights and cache
KV_TOKENS = 4096  # a cache of this many tokens is asked of the memory


@dataclass(frozen=True, slots=True)
class FitReport:
    """What the headers say, and what stands against running them here."""

    format: str  # "gguf" or "safetensors"
    architecture: str
    family: str | None
    num_parameters: int
    weight_bytes: int
    tensor_types: Mapping[str, int]  # type -> bytes
    max_context: int  # tokens; 0 = not said
    kv_bytes_per_token: int  # at kv_dtype f16; 0 = not known for this architecture
    engram: str  # "none", "inside", "in a separate file"
    memory_needed: int
    memory_free: int  # 0 = unknown
    disk_needed: int
    disk_free: int
    obstacles: tuple[str, ...] = ()  # why the engine cannot run it
    shortages: tuple[str, ...] = ()  # what the machine lacks
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def can_run(self) -> bool:
        return not self.obstacles and not self.shortages


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a model that size its cache."""

    architecture: str
    max_context: int
    num_layers: int
    num_kv_heads: int
    head_dim: int

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * 2 * self.num_layers * self.num_kv_heads * self.head_dim


def judge(
    weights: Sequence[tuple[str, int, ReadAt]],  # (name, bytes, reader) of every weight file
    config: Mapping[str, Any] | None,  # config.json, for safetensors
    *,
    disk_needed: int,
    folder: Path,
    advance: Callable[[str], None] = lambda name: None,
) -> FitReport:
    """Reads the headers and compares them with engine and machine. Raises HeaderError on broken ones."""
    is_gguf = weights[0][0].endswith(".gguf")
    tensors: list[HeaderTensor] = []
    obstacles: list[str] = []
    metadata: Mapping[str, Any] = {}
    for name, _, read_at in weights:
        advance(name)
        if is_gguf:
            header = read_gguf_header(read_at)
            metadata = {**header.metadata, **metadata}
            tensors.extend(header.tensors)
        else:
            tensors.extend(read_safetensors_header(read_at))
    shape = gguf_shape(metadata) if is_gguf else config_shape(config or {})
    family = _family(shape.architecture, is_gguf, config or {})
    if family is None:
        obstacles.append(
            f"the architecture {shape.architecture} is not supported; supported: {supported_text()}"
        )
    obstacles += _type_obstacles(tensors, family, is_gguf)
    obstacles += _gguf_obstacles(metadata) if is_gguf else []
    engram = _engram(tensors, metadata, config or {})
    if engram == "in a separate file":
        obstacles.append("the Engram tables of this model are in a separate file, which is not read")
    weight_bytes = sum(tensor.num_bytes for tensor in tensors)
    memory = plan_memory(weight_bytes, shape.kv_bytes_per_token, shape.max_context)
    free, disk = free_memory(), free_disk(folder)
    return FitReport(
        format="gguf" if is_gguf else "safetensors",
        architecture=shape.architecture,
        family=family.name if family else None,
        num_parameters=_num_parameters(tensors),
        weight_bytes=weight_bytes,
        tensor_types=_types(tensors),
        max_context=shape.max_context,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        engram=engram,
        memory_needed=memory,
        memory_free=free,
        disk_needed=disk_needed,
        disk_free=disk,
        obstacles=tuple(obstacles),
        shortages=tuple(_shortages(memory, free, disk_needed, disk)),
    )


def plan_memory(weight_bytes: int, kv_bytes_per_token: int, max_context: int) -> int:
    """Bytes that a modest run takes: weights, a cache of some thousand tokens, and what works on them."""
    return weight_bytes + kv_bytes_per_token * min(max_context, KV_TOKENS) + WORKING_BYTES


def report_lines(name: str, report: FitReport) -> list[str]:
    """The report for people."""
    types = ", ".join(f"{t} {human_bytes(b)}" for t, b in sorted(report.tensor_types.items(), key=_by_bytes))
    lines = [
        f"{name}: {report.architecture}, {report.format}, {report.num_parameters / 1e6:,.0f} M parameters",
        f"  weights: {human_bytes(report.weight_bytes)} ({types})",
    ]
    if report.engram != "none":
        lines.append(f"  Engram: {report.engram}")
    if report.kv_bytes_per_token:
        lines.append(
            f"  context: {report.max_context:,} tokens; cache: {report.kv_bytes_per_token:,} bytes a token"
        )
    lines.append(f"  disk: {human_bytes(report.disk_needed)} needed, {human_bytes(report.disk_free)} free")
    free = human_bytes(report.memory_free) if report.memory_free else "unknown"
    lines.append(f"  memory: about {human_bytes(report.memory_needed)} needed, {free} free")
    lines += [f"  cannot run: {reason}" for reason in report.obstacles]
    lines += [f"  not enough: {reason}" for reason in report.shortages]
    if report.can_run:
        lines.append("  this engine can run it on this machine")
    return lines


def human_bytes(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit in ("bytes", "kB") or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def free_memory() -> int:
    """Bytes that this process can still get; 0 when nobody says. Downloads work before the core is built."""
    from deepinfer_cli import machine

    if machine.native_problem() is None:
        return machine.available_memory_bytes()
    return machine.describe().memory_free_bytes


def free_disk(folder: Path) -> int:
    """Free bytes where `folder` is or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _by_bytes(item: tuple[str, int]) -> int:
    return -item[1]


def _types(tensors: Sequence[HeaderTensor]) -> dict[str, int]:
    types: dict[str, int] = {}
    for tensor in tensors:
        types[tensor.dtype] = types.get(tensor.dtype, 0) + tensor.num_bytes
    return types


def _num_parameters(tensors: Sequence[HeaderTensor]) -> int:
    total = 0
    for tensor in tensors:
        count = 1
        for size in tensor.shape:
            count *= size
        total += count
    return total


def _int(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def gguf_shape(metadata: Mapping[str, Any]) -> Shape:
    architecture = str(metadata.get("general.architecture", "unknown"))
    key = f"{architecture}."
    heads = _int(metadata.get(key + "attention.head_count"))
    width = _int(metadata.get(key + "embedding_length"))
    dim = _int(metadata.get(key + "attention.key_length")) or (width // heads if heads else 0)
    return Shape(
        architecture=architecture,
        max_context=_int(metadata.get(key + "context_length")),
        num_layers=_int(metadata.get(key + "block_count")),
        num_kv_heads=_int(metadata.get(key + "attention.head_count_kv")) or heads,
        head_dim=dim,
    )


def config_shape(config: Mapping[str, Any]) -> Shape:
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else "unknown"
    heads = _int(config.get("num_attention_heads"))
    dim = _int(config.get("head_dim")) or (_int(config.get("hidden_size")) // heads if heads else 0)
    return Shape(
        architecture=str(name),
        max_context=_int(config.get("max_position_embeddings")),
        num_layers=_int(config.get("num_hidden_layers")),
        num_kv_heads=_int(config.get("num_key_value_heads")) or heads,
        head_dim=dim,
    )


def _family(architecture: str, is_gguf: bool, config: Mapping[str, Any]) -> Family | None:
    if is_gguf:
        return family_of_gguf(architecture)
    names = config.get("architectures")
    return family_of_config([str(n) for n in names] if isinstance(names, list) else [])


def _type_obstacles(tensors: Sequence[HeaderTensor], family: Family | None, is_gguf: bool) -> list[str]:
    if family is None:
        return []
    wanted = family.gguf_types if is_gguf else family.safetensors_types
    first: dict[str, str] = {}
    for tensor in tensors:
        if tensor.dtype not in wanted:
            first.setdefault(tensor.dtype, tensor.name)
    return [
        f"tensor type {dtype} (first in {name}) is not supported; supported: {', '.join(wanted)}"
        for dtype, name in first.items()
    ]


def split_files(metadata: Mapping[str, Any]) -> int:
    """Files that a GGUF model was split into; 1 for a whole one."""
    return _int(metadata.get("split.count")) or 1


def _gguf_obstacles(metadata: Mapping[str, Any]) -> list[str]:
    if (count := split_files(metadata)) > 1:
        return [f"the model is split into {count} GGUF files; only whole files are read"]
    from deepinfer_cli.tokenizer.gguf import gguf_tokenizer
    from deepinfer_cli.tokenizer.library import TokenizerError

    try:
        gguf_tokenizer(metadata)
    except TokenizerError as error:
        return [str(error)]
    return []


def _engram(tensors: Sequence[HeaderTensor], metadata: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Where a model's Engram tables are. Files that speak of them in their metadata need not hold them."""
    if any("engram" in t.name and ("embd" in t.name or "embed" in t.name) for t in tensors):
        return "inside"
    text_config = config.get("text_config")
    settings = {**config, **(text_config if isinstance(text_config, dict) else {})}
    named = any("engram" in key for key in metadata) or bool(settings.get("engram_layer_ids"))
    architecture = str(metadata.get("general.architecture", ""))
    return "in a separate file" if named or architecture.startswith("deepseek41") else "none"


def _shortages(memory: int, free: int, disk_needed: int, disk_free: int) -> list[str]:
    found = []
    if disk_needed > disk_free:
        found.append(f"disk: {human_bytes(disk_needed)} are needed and {human_bytes(disk_free)} are free")
    if free and memory > free:
        found.append(f"memory: about {human_bytes(memory)} are needed and {human_bytes(free)} are free")
    return found


def file_reader(path: Path) -> ReadAt:
    """ReadAt over a local file."""

    def read_at(offset: int, size: int) -> bytes:
        with path.open("rb") as file:
            return os.pread(file.fileno(), size, offset)

    return read_at
