"""Runs of the real command in a subprocess, with everything that must hold for every run checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "cases" / "batch"
TIMEOUT_S = 300  # only a hang is a failure; machines can be busy


@dataclass(frozen=True)
class Finished:
    code: int
    stdout: bytes
    stderr: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return parse_rows(self.stdout)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's, without settings of ours."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DEEPINFER_") and k != "NO_COLOR"}
    return {**clean, **(extra or {})}


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "deepinfer_cli", *map(str, args)]


def deepinfer(
    *args: str | Path,
    stdin: bytes | None = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Finished:
    done = subprocess.run(
        command(*args), input=stdin, capture_output=True, env=environment(env), cwd=cwd, timeout=TIMEOUT_S
    )
    stderr = done.stderr.decode()
    assert "Traceback" not in stderr, stderr
    return Finished(done.returncode, done.stdout, stderr)


def run_fake(*args: str | Path, **kwargs: Any) -> Finished:
    return deepinfer("run", "--model", "fake", *args, **kwargs)


def _no_constant(text: str) -> Any:
    raise AssertionError(f"{text} is not JSON")


def _no_doubles(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names), f"doubled keys in {names}"
    return dict(pairs)


def parse_rows(data: bytes) -> list[dict[str, Any]]:
    """Output rows, each one strictly valid: UTF-8, RFC 8259, whole lines, no line-like characters."""
    assert not data or data.endswith(b"\n")
    text = data.decode("utf-8")
    for char in "\u2028\u2029\u0085\r":
        assert char not in text
    rows = []
    for line in text.split("\n")[:-1]:
        row = json.loads(line, parse_constant=_no_constant, object_pairs_hook=_no_doubles)
        line.encode().decode()
        json.dumps(row, ensure_ascii=False).encode()  # a lone surrogate escape would fail here
        rows.append(row)
    return rows


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
