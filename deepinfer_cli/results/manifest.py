"""OUT.run.json: what the rows' `settings` id stands for, and the story of the run. Written atomically."""

from __future__ import annotations

import calendar
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import all_settings
from deepinfer_cli.config.values import to_json
from deepinfer_cli.constraints.fields import RUN_KEYS, run_constraint
from deepinfer_cli.results.durable import replace_text

SCHEMA_VERSION = 1
# Settings that name a file, a model or a level: what it comes to counts, not how it is called.
_BY_CONTENT = ("model", "revision", "tokenizer", "chat_template", "template", "isa", *RUN_KEYS)


def file_digest(path: str | None) -> str | None:
    """sha256 of a small settings file."""
    return None if path is None else "sha256:" + hashlib.sha256(Path(path).read_bytes()).hexdigest()


def constraint_digest(config: RunConfig) -> str | None:
    """Of what the run asks of its rows, in a file or not."""
    constraint = run_constraint(config)
    return None if constraint is None else "blake2b:" + constraint.key.hex()


def settings_id(config: RunConfig, fingerprints: Mapping[str, Any]) -> str:
    """16 hex digits over everything besides the row that can change a result row."""
    settings = _answer_settings(config, ("model", "engine", "sampling", "constraints", "rows", "output"))
    return _digest({"settings": settings, "fingerprints": dict(fingerprints)})


def row_settings_digest(config: RunConfig) -> bytes:
    """8 bytes over the settings that a row's own parameters and prompt are resolved against; no model in it,
    so that --validate knows a row's request hash too."""
    settings = _answer_settings(config, ("sampling", "constraints", "rows"))
    settings["template"] = file_digest(config.rows.template)
    settings["constraint"] = constraint_digest(config)
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


Attempt = dict[str, Any]


def earlier_run(path: str | None) -> dict[str, Any]:
    """The run file's content; empty when there is none or it says nothing: rows can do without it."""
    if path is None:
        return {}
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    known = isinstance(content, dict) and content.get("schema_version") == SCHEMA_VERSION
    return content if known else {}


def earlier_attempts(content: Mapping[str, Any], *, num_rows: int, last_write: float | None) -> list[Attempt]:
    """The attempts of an earlier run file. One that never ended was killed: the rows tell what it did, and
    the output's last change when."""
    found = content.get("attempts")
    attempts = [dict(a) for a in found if isinstance(a, dict)] if isinstance(found, list) else []
    if attempts and attempts[-1].get("status") == "running":
        last = attempts[-1]
        last["status"] = "killed"
        before = last.get("rows_before")
        last["rows"] = max(0, num_rows - (before if isinstance(before, int) else 0))
        started = _seconds_of(last.get("started"))
        if last_write is not None and started is not None:
            last["ended"] = _stamp(last_write)
            last["seconds"] = round(max(0.0, last_write - started), 3)
    return attempts


def close_killed(
    path: str | None,
    earlier: Mapping[str, Any],
    attempts: Sequence[Attempt],
    counts: Mapping[str, Any],
) -> None:
    """An attempt that was killed between its last row and its last word left nothing to run: the run file
    gets the counts that it did not live to write. `attempts` are those of earlier_attempts()."""
    if path is None or not attempts or earlier.get("attempts") == attempts:
        return
    content = {
        **earlier,
        "attempts": list(attempts),
        "counts": dict(counts),
        "seconds": _seconds_of_all(attempts),
    }
    replace_text(path, _as_text(content))


def _seconds_of_all(attempts: Sequence[Attempt]) -> float:
    known = [float(a["seconds"]) for a in attempts if isinstance(a.get("seconds"), int | float)]
    return round(sum(known), 3)


def _as_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What makes two run files' settings ids differ, a few words each."""
    found = []
    was, table = _dict(before.get("settings")), all_settings()
    for key, value in _dict(now.get("settings")).items():
        if key in table and table[key].changes_answers and key not in _BY_CONTENT and was.get(key) != value:
            found.append(f"{key}: {_short(was.get(key))} -> {_short(value)}")
    for part in ("fingerprints", "numerics"):
        was, new = _dict(before.get(part)), _dict(now.get(part))
        for key in (
            "model",
            "tokenizer",
            "template",
            "row_template",
            "constraint",
            "isa",
            "version",
            "constraints",
        ):
            if was.get(key) != new.get(key):
                shown = f": {was.get(key)} -> {new.get(key)}" if part == "numerics" else ""
                found.append(f"the {_NUMERICS.get(key, key)}{shown}")
    return found


_NUMERICS = {"version": "numerics version", "constraints": "constraint engine"}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


class RunFile:
    """The run file of one attempt; `path` None keeps it in memory only."""

    def __init__(
        self,
        path: str | None,
        content: Mapping[str, Any],
        earlier: Sequence[Attempt] = (),
        *,
        rows_before: int = 0,
    ) -> None:
        self.path = path
        self._content = dict(content)
        attempt = {"started": _stamp(time.time()), "status": "running", "rows_before": rows_before}
        build = self._content.get("deepinfer")
        self._content["attempts"] = [*earlier, {**attempt, "deepinfer": build}]

    @property
    def attempts(self) -> list[Attempt]:
        found: list[Attempt] = self._content["attempts"]
        return found

    def write(self) -> None:
        """In one step, on the disk."""
        if self.path is not None:
            replace_text(self.path, _as_text(self._content))

    def finish(
        self,
        status: str,
        exit_code: int,
        own: Mapping[str, Any],
        counts: Mapping[str, Any],
        seconds: float,
    ) -> None:
        """`own`: what this attempt did; `counts`: of all rows of the run so far."""
        attempt = self.attempts[-1]
        attempt.update(
            ended=_stamp(time.time()), status=status, exit_code=exit_code, seconds=round(seconds, 3)
        )
        attempt.update(own)
        self._content["counts"] = dict(counts)
        self._content["seconds"] = _seconds_of_all(self.attempts)
        self.write()


_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def _stamp(seconds: float) -> str:
    return time.strftime(_FORMAT, time.gmtime(seconds))


def _seconds_of(stamp: Any) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(stamp, _FORMAT)))
    except (TypeError, ValueError):
        return None
