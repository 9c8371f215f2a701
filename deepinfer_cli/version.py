"""Which deepinfer this is: version, commit if known, build type and instruction set level."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

from deepinfer_cli import __version__

_PACKAGE = Path(__file__).resolve().parent


def git(*words: str) -> str | None:
    """What git says of the checkout that this package runs from; None for an installed package."""
    root = _PACKAGE.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _commit() -> str | None:
    return git("rev-parse", "--short=12", "HEAD") or None


def _native_facts() -> dict[str, Any] | None:
    """What the native core says about itself; None when it is not built."""
    try:
        native = importlib.import_module("deepinfer_cli._native")
    except ImportError:
        return None
    facts: dict[str, Any] = dict(native.build_info())
    if hasattr(native, "default_isa"):
        facts["isa"] = native.default_isa()
    return facts


def version_facts() -> dict[str, Any]:
    native = _native_facts()
    known = native or {}
    return {
        "version": __version__,
        "commit": _commit() or known.get("commit"),
        "native": native is not None,
        "build_type": known.get("build_type"),
        "compiler": known.get("compiler"),
        "isa": known.get("isa"),
        "accelerators": ["cpu"],
    }


def version_line() -> str:
    facts = version_facts()
    labels = {"commit": "commit", "build_type": "build", "compiler": "compiler", "isa": "isa"}
    details = [f"{label} {facts[key]}" for key, label in labels.items() if facts[key]]
    if not facts["native"]:
        details.append("native core not built")
    return f"deepinfer {facts['version']} ({', '.join(details)})"


def version_json() -> str:
    return json.dumps(version_facts())
