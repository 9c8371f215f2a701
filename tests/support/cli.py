"""Runs the `deepinfer` command the way a shell does, with both streams apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode()


def clean_environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without anything that would steer deepinfer, plus `extra`."""
    dropped = ("DEEPINFER_", "COLUMNS", "NO_COLOR", "TERM", "_DEEPINFER_COMPLETE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return {**kept, **(extra or {})}


def deepinfer(
    *args: str, env: Mapping[str, str] | None = None, stdin: bytes = b"", cwd: Path | None = None
) -> Ran:
    """`deepinfer ARGS` with stdin, stdout and stderr as pipes."""
    done = subprocess.run(
        [sys.executable, "-m", "deepinfer_cli", *args],
        input=stdin,
        capture_output=True,
        env=clean_environ(env),
        cwd=cwd,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr.decode())
