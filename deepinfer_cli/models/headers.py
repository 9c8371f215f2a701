"""Model files that are about to run: opened by the native reader, which trusts nothing in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from deepinfer_cli import _native


class FileTensor(NamedTuple):
    name: str
    dtype: str  # "Q4_1", "BF16"
    shape: tuple[int, ...]  # outermost first
    num_bytes: int
    file_index: int  # into ModelFile.files
    offset: int  # bytes from the start of that file


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What a model's files say about themselves; the weights stay on disk until an executor maps them."""

    native: _native.TensorFile
    format: str  # "gguf" or "safetensors"
    files: Sequence[str]
    metadata: Mapping[str, Any]  # GGUF keys, or config.json flattened with dots
    tensors: Sequence[FileTensor]

    @property
    def num_bytes(self) -> int:
        return sum(tensor.num_bytes for tensor in self.tensors)

    def rows_of(self, *names: str) -> int | None:
        """Rows of the first tensor of these names that is there."""
        shapes = {tensor.name: tensor.shape for tensor in self.tensors}
        return next((shapes[name][0] for name in names if shapes.get(name)), None)

    def without_lists(self) -> ModelFile:
        """The same file, whose vocabulary has been read: its lists are 10 MiB of every run otherwise."""
        kept = {key: value for key, value in self.metadata.items() if not isinstance(value, list)}
        return replace(self, metadata=kept)


def open_model_file(path: Path) -> ModelFile:
    """Raises NativeError in one sentence naming file, tensor, found and wanted."""
    native = _native.open_tensor_file(path)
    return ModelFile(
        native=native,
        format=native.format,
        files=tuple(native.files),
        metadata=native.metadata,
        tensors=tuple(FileTensor(*tensor) for tensor in native.tensors),
    )


def cpu_executor(
    file: ModelFile,
    pool: Any,
    *,
    precision: str,
    residual_threshold: float,
    kv_dtype: str,
    isa: str,
    block_tokens: int,
) -> Any:
    """Maps and packs the weights. isa: a level's name, or "auto"."""
    return _native.CpuExecutor(
        file.native,
        pool,
        precision=precision,
        residual_threshold=residual_threshold,
        kv_dtype=kv_dtype,
        isa=None if isa == "auto" else isa,
        block_tokens=block_tokens,
    )
