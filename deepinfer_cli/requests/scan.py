"""The native row scanner: strict JSON, doubled keys, depth, and the exact bytes of every top-level value."""

from __future__ import annotations

from deepinfer_cli._native import IdTable, RowScan, scan_row

__all__ = ["IdTable", "RowScan", "scan_row"]
