"""What identifies a model's weights, in a time that does not grow with their size.

The fingerprint is the SHA-256 over, for every file in order: its size, everything before its first tensor
(metadata, tensor table), and 4 KiB pieces from the start and the middle of its tensors. Models of up to
4,096 tensors have every tensor sampled, larger ones 4,096 evenly chosen. Two fine-tunes of one model differ
in every trained tensor and are told apart; a single flipped bit far inside a tensor is not, which is what
the checksum of the download is for.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from deepinfer_cli.models.headers import FileTensor, ModelFile

PIECE_BYTES = 4096
MAX_TENSORS = 4096


def weights_fingerprint(file: ModelFile) -> str:
    """ "sampled-sha256:" and 32 hex digits."""
    digest = hashlib.sha256()
    for index, path in enumerate(file.files):
        tensors = sorted((t for t in file.tensors if t.file_index == index), key=lambda t: t.offset)
        with Path(path).open("rb") as data:
            descriptor = data.fileno()
            size = os.fstat(descriptor).st_size
            digest.update(f"{size}\0{len(tensors)}\0".encode())
            _update(digest, descriptor, 0, tensors[0].offset if tensors else size)
            for tensor in _chosen(tensors):
                middle = tensor.offset + tensor.num_bytes // 2
                end = tensor.offset + tensor.num_bytes
                _update(digest, descriptor, tensor.offset, min(PIECE_BYTES, tensor.num_bytes))
                _update(digest, descriptor, middle, min(PIECE_BYTES, end - middle))
    return f"sampled-sha256:{digest.hexdigest()[:32]}"


def _chosen(tensors: list[FileTensor]) -> list[FileTensor]:
    if len(tensors) <= MAX_TENSORS:
        return tensors
    return [tensors[i * len(tensors) // MAX_TENSORS] for i in range(MAX_TENSORS)]


def _update(digest: hashlib._Hash, descriptor: int, offset: int, size: int) -> None:
    while size > 0:
        piece = os.pread(descriptor, min(size, 1 << 20), offset)
        if not piece:
            return
        digest.update(piece)
        offset += len(piece)
        size -= len(piece)
