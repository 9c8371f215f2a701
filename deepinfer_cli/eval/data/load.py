"""A task's data set: from --data, from the program, or from the hub at one commit."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from deepinfer_cli.errors import InputError
from deepinfer_cli.eval.data.files import read_records
from deepinfer_cli.eval.tasks.base import Task
from deepinfer_cli.eval.types import DataSet


def load_data(task: Task, data: str | None, revision: str | None) -> DataSet:
    """Problems of `task`. `data` is a file in the published format; `revision` pins the hub's."""
    if data is not None:
        if revision is not None:
            raise InputError("--data-revision is for the hub, --data for a file", "give one of them")
        return _from_files(task, [Path(data)], {"name": data, "path": data})
    if task.own_data is not None:
        return _from_files(task, [task.own_data], {"name": f"built-in {task.name}"})
    if task.hub is None:
        raise InputError(f"task {task.name} needs --data FILE: {task.needs_data}")
    from deepinfer_cli.eval.data.hub import fetch

    paths, origin = fetch(task.hub, revision)
    return _from_files(task, paths, origin)


def _from_files(task: Task, paths: list[Path], origin: dict[str, Any]) -> DataSet:
    records: list[dict[str, Any]] = []
    digests = []
    for path in paths:
        found, digest = read_records(path)
        records += found
        digests.append(digest)
    sha256 = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return task.build(records, {**origin, "sha256": sha256})
