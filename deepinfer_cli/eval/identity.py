"""eval.json: what was asked of which model with which settings, and whether --resume may go on with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.errors import ConfigError, InputError
from deepinfer_cli.eval.protocol import Protocol
from deepinfer_cli.eval.scoring.types import SCORER_VERSION
from deepinfer_cli.eval.tasks.base import Task
from deepinfer_cli.eval.types import DataSet
from deepinfer_cli.results.durable import replace_text

IDENTITY = "eval.json"
SCHEMA_VERSION = 1
Identity = dict[str, Any]

# Sampling settings that are shown and stored beside every score.
_SHOWN = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "min_tokens",
    "seed",
)


def describe(
    task: Task,
    data: DataSet,
    protocol: Protocol,
    config: RunConfig,
    manifest: Mapping[str, Any],
    *,
    num_problems: int,
    limit: int | None,
) -> Identity:
    """All of it, as plain JSON values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "task": task.name,
        "title": task.title,
        "caution": task.caution,
        "data": {
            **data.origin,
            "num_records": data.num_records,
            "left_out": dict(data.left_out),
            "warnings": list(data.warnings),
        },
        "problem_order": [p.id for p in data.problems[:num_problems]],
        "num_problems": num_problems,
        "num_problems_in_data": len(data.problems),
        "limit": limit if num_problems < len(data.problems) else None,
        "protocol": protocol.as_json(),
        "settings": {key: config.get(key) for key in _SHOWN},
        "engine": {
            key: config.get(key)
            for key in ("precision", "residual_threshold", "kv_dtype", "isa", "max_model_len")
        },
        "model": manifest.get("model"),
        "fingerprints": manifest.get("fingerprints"),
        "settings_id": manifest.get("settings_id"),
        "context": manifest.get("context"),
        "deepinfer": manifest.get("deepinfer"),
        "scorer_version": SCORER_VERSION,
    }


def read_identity(folder: Path) -> Identity:
    path = folder / IDENTITY
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{folder} holds no evaluation: there is no {IDENTITY} in it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("task"), str) or "protocol" not in value:
        raise InputError(f"{path} does not describe an evaluation")
    return value


def write_identity(folder: Path, identity: Identity) -> None:
    replace_text(folder / IDENTITY, json.dumps(identity, ensure_ascii=False, indent=1) + "\n")


# What must not differ between the attempts of one evaluation: (path in eval.json, how it is called).
_FIXED = (
    (("task",), "the task"),
    (("data", "sha256"), "the data"),
    (("protocol", "shuffle_seed"), "the shuffle seed"),
    (("protocol", "chat_template_kwargs"), "the chat template's arguments"),
    (("settings",), "the sampling settings"),
    (("fingerprints",), "the model"),
    (("settings_id",), "the settings or the instruction set"),
)


def refuse_changes(earlier: Identity, now: Identity) -> None:
    """ConfigError when samples of both would not belong together."""
    for path, what in _FIXED:
        before, after = _at(earlier, path), _at(now, path)
        if json.dumps(before, sort_keys=True) != json.dumps(after, sort_keys=True):
            raise ConfigError(
                f"--resume: {what} changed since this evaluation began{_difference(before, after)}",
                "use the same settings, or another folder with -o",
            )


def _at(identity: Identity, path: tuple[str, ...]) -> Any:
    value: Any = identity
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
        return f" ({', '.join(f'{k}: {before.get(k)} -> {after.get(k)}' for k in keys)})"
    return f" ({before} -> {after})"
