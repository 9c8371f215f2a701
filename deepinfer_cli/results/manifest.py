"""OUT.run.json: what the rows' `settings` id stands for, and the story of the run. Written atomically."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import all_settings
from deepinfer_cli.config.values import to_json
from deepinfer_cli.errors import OutputError

SCHEMA_VERSION = 1
# Settings that name a file or model: what is in it counts, not how it is called.
_BY_CONTENT = ("model", "revision", "tokenizer", "chat_template", "template")


def file_digest(path: str | None) -> str | None:
    """sha256 of a small settings file."""
    return None if path is None else "sha256:" + hashlib.sha256(Path(path).read_bytes()).hexdigest()


def settings_id(config: RunConfig, fingerprints: Mapping[str, Any]) -> str:
    """16 hex digits over everything besides the row that can change a result row."""
    settings = _answer_settings(config, ("model", "engine", "sampling", "rows", "output"))
    return _digest({"settings": settings, "fingerprints": dict(fingerprints)})


def row_settings_digest(config: RunConfig) -> bytes:
    """8 bytes over the settings that a row's own parameters and prompt are resolved against; no model in it,
    so that --validate knows a row's request hash too."""
    settings = _answer_settings(config, ("sampling", "rows"))
    settings["template"] = file_digest(config.rows.template)
    return bytes.fromhex(_digest(settings))


def _answer_settings(config: RunConfig, groups: Sequence[str]) -> dict[str, Any]:
    """Resolved settings of `groups` that can change an answer or a row."""
    return {
        key: to_json(spec, config.get(key))
        for key, spec in all_settings().items()
        if spec.changes_answers and spec.group in groups and key not in _BY_CONTENT
    }


def _digest(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8, person=b"di-settings").hexdigest()


class RunFile:
    """The run file of one attempt; `path` None keeps it in memory only."""

    def __init__(self, path: str | None, content: Mapping[str, Any]) -> None:
        self.path = path
        self._content = dict(content)
        self._content["attempts"] = [{"started": _now(), "status": "running"}]

    def write(self) -> None:
        """Beside, flushed to the disk, then renamed over: a reader sees the old file or the new one."""
        if self.path is None:
            return
        target = Path(self.path)
        beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        text = json.dumps(self._content, ensure_ascii=False, indent=2) + "\n"
        try:
            with beside.open("w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise OutputError(f"cannot write {self.path}: {error.strerror}") from None

    def finish(self, status: str, exit_code: int, counts: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        attempt = self._content["attempts"][-1]
        attempt.update(ended=_now(), status=status, exit_code=exit_code, counts=dict(counts), **more)
        self.write()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
