"""The native row scanner: strict JSON, doubled keys, depth, and the exact bytes of every top-level value."""

from __future__ import annotations

from typing import Protocol

from deepinfer_cli._native import IdTable, RowScan, scan_row

__all__ = ["IdTable", "RowScan", "RowTable", "scan_row"]


class RowTable(Protocol):
    """What the parser asks of an IdTable."""

    def insert(self, key: bytes, value: int, /) -> int: ...
    def increment(self, key: bytes, /) -> int: ...
