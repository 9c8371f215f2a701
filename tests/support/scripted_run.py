"""Stands in for the run loop: answers each row with what a test scripted, through the same sink."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.progress import Progress

# row -> text, or (text, finish_reason), or an exception for a failed row
Script = Callable[[Mapping[str, Any]], Any]


class ScriptedRun:
    """`monkeypatch.setattr(batch_run, "run", ScriptedRun(script))`."""

    def __init__(self, script: Script, *, stop_after: int | None = None, fingerprint: str = "f") -> None:
        self.script = script
        self.stop_after = stop_after  # rows, then the run is interrupted
        self.fingerprint = fingerprint
        self.rows: list[dict[str, Any]] = []  # of the last call
        self.config: RunConfig | None = None

    def __call__(self, config: RunConfig, console: Console, sink: Any) -> int:
        text = Path(config.inputs[0]).read_text(encoding="utf-8")
        self.rows = [json.loads(line) for line in text.splitlines()]
        self.config = config
        manifest = {
            "model": {"name": "scripted"},
            "fingerprints": {"model": self.fingerprint, "template": "t"},
            "settings_id": "0" * 16,
            "context": 4096,
            "deepinfer": "test",
        }
        sink.start(config, manifest, Progress(console, None, "rows"))
        failed = False
        # Completion order is not input order.
        for row in self.rows[::-1][: self.stop_after]:
            answer = self.script(row)
            failed |= isinstance(answer, Exception)
            sink.write(json.dumps(_result(row, answer)) + "\n")
        sink.flush()
        if self.stop_after is not None and self.stop_after < len(self.rows):
            return 130
        return 3 if failed else 0


def _result(row: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    if isinstance(answer, Exception):
        error = {"code": "engine_error", "message": str(answer), "line": 1, "retryable": False}
        return {"id": row["id"], "index": 0, "status": "error", "outputs": [], "error": error}
    text, finish = answer if isinstance(answer, tuple) else (answer, "stop")
    output = {"text": text, "finish_reason": finish, "stop_reason": None, "seed": 1}
    usage = {"prompt_tokens": 10, "completion_tokens": len(text)}
    return {"id": row["id"], "index": 0, "status": "ok", "outputs": [output], "usage": usage, "warnings": []}
