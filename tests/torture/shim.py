"""The preloaded library of shim.cc: built when needed, its environment, its log."""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("shim.cc")
_ENTRY = struct.Struct("=cQqII")


@dataclass(frozen=True)
class Call:
    """One successful call, as shim.cc's Entry describes it."""

    kind: str
    inode: int
    place: int
    first: bytes
    second: bytes


def build(folder: Path) -> Path:
    """Where the library is; compiled on first use with the compiler that builds the product."""
    library = folder / "shim.so"
    if not library.exists():
        compiler = shlex.split(os.environ.get("CXX", "g++"))
        options = [
            "-std=c++20",
            "-O1",
            "-Wall",
            "-Wextra",
            "-fPIC",
            "-shared",
            str(_SOURCE),
            "-o",
            str(library),
        ]
        subprocess.run([*compiler, *options, "-ldl"], check=True, stdin=subprocess.DEVNULL)
    return library


def environment(library: Path, folder: Path, *, log: Path | None = None, fault: str = "") -> dict[str, str]:
    given = {"LD_PRELOAD": str(library), "TORTURE_FOLDER": str(folder)}
    if log is not None:
        given["TORTURE_LOG"] = str(log)
    if fault:
        given["TORTURE_FAULT"] = fault
    return given


def read_log(path: Path) -> list[Call]:
    return list(_calls(path.read_bytes())) if path.exists() else []


def _calls(data: bytes) -> Iterator[Call]:
    at = 0
    while at < len(data):
        kind, inode, place, num_first, num_second = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        first = data[at : at + num_first]
        at += num_first
        yield Call(kind.decode(), inode, place, first, data[at : at + num_second])
        at += num_second
