"""Which files a run reads, in which order, and what is refused before anything runs."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deepinfer_cli.errors import InputError

STDIN = "-"
_STDIN_NAME = "<stdin>"

_FOREIGN_MAGIC = (
    (b"PAR1", "Parquet"),
    (b"ARROW1", "Arrow"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"SQLite format 3\x00", "SQLite"),
)
_FOREIGN_SUFFIXES = {
    ".parquet": "Parquet",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".xlsx": "Excel",
}
_PANDAS = 'python -c \'import pandas; pandas.read_{f}("{p}").to_json("{o}", orient="records", lines=True)\''
_CSV = (
    "python -c 'import csv, json; "
    '[print(json.dumps(r)) for r in csv.DictReader(open("{p}", encoding="utf-8-sig"){d})]\' > {o}'
)
_CONVERSIONS = {
    "Parquet": _PANDAS.replace("{f}", "parquet"),
    "Arrow": _PANDAS.replace("{f}", "feather"),
    "Excel": _PANDAS.replace("{f}", "excel"),
    "CSV": _CSV.replace("{d}", ""),
    "TSV": _CSV.replace("{d}", ', delimiter="\\t"'),
    "bzip2": "bzcat {p} | deepinfer run -",
    "xz": "xzcat {p} | deepinfer run -",
    "zip": "unzip -p {p} | deepinfer run -",
    "SQLite": "sqlite3 -json {p} 'select * from TABLE' | jq -c '.[]' > {o}",
}


@dataclass(frozen=True, slots=True)
class Source:
    """One input of the run."""

    path: str  # as opened; "-" is standard input
    name: str  # as shown and written into rows
    identity: tuple[int, int] | None  # (device, inode) of a regular file
    num_bytes: int | None  # as stored; None for pipes


def expand(patterns: Sequence[str]) -> list[Source]:
    """Paths and globs to existing files: each glob's matches sorted by name, the arguments in their order."""
    if not patterns:
        raise InputError("no input given", "name one or more JSONL files, or - for standard input")
    paths: list[str] = []
    for pattern in patterns:
        if pattern == STDIN or not glob.has_magic(pattern) or os.path.lexists(pattern):
            matches = [pattern]
        else:
            matches = sorted(p for p in _glob(pattern) if not Path(p).is_dir())
            if not matches:
                raise InputError(f"no file matches {pattern!r}")
        paths.extend(path for path in matches if path not in paths)
    if paths.count(STDIN) and len(paths) > 1:
        raise InputError("standard input cannot be combined with files", "cat the files into one stream")
    return [_source(path) for path in paths]


def _glob(pattern: str) -> list[str]:
    return glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob refuses absolute patterns


def _source(path: str) -> Source:
    if path == STDIN:
        info = os.fstat(0)
        regular = stat.S_ISREG(info.st_mode)
        identity = (info.st_dev, info.st_ino) if regular else None
        return Source(STDIN, _STDIN_NAME, identity, info.st_size if regular else None)
    try:
        info = Path(path).stat()
        if stat.S_ISDIR(info.st_mode):
            raise InputError(f"{path} is a folder", f"quote a glob: '{path.rstrip('/')}/*.jsonl'")
        if not stat.S_ISREG(info.st_mode):
            return Source(path, path, None, None)
        with Path(path).open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    refuse_foreign(path, head)
    return Source(path, path, (info.st_dev, info.st_ino), info.st_size)


def refuse_foreign(path: str, head: bytes) -> None:
    """Formats that people have but that are not JSONL, by content or by name."""
    kind = next((name for magic, name in _FOREIGN_MAGIC if head.startswith(magic)), None)
    kind = kind or _FOREIGN_SUFFIXES.get(Path(path).suffix.lower())
    if kind is not None:
        shown, out = (
            ("IN", "OUT.jsonl") if path == _STDIN_NAME else (path, Path(path).with_suffix(".jsonl").name)
        )
        raise InputError(
            f"{path} is {kind}; deepinfer reads JSON Lines", _CONVERSIONS[kind].format(p=shown, o=out)
        )


def is_input(identity: tuple[int, int], sources: Sequence[Source]) -> str | None:
    """The name of the input that is the very file `identity`, if one is."""
    return next((source.name for source in sources if source.identity == identity), None)
