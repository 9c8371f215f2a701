"""Tasks by name: the built-in table, then entry points of the group `deepinfer.eval_tasks`."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Final

from deepinfer_cli.errors import UsageError
from deepinfer_cli.eval.tasks.base import Task

ENTRY_POINT_GROUP: Final = "deepinfer.eval_tasks"

_BUILT_IN: Final = ("smoke", "aime2026", "aime2025", "gpqa_diamond", "hle", "gsm8k", "math500", "custom")


def task_names() -> list[str]:
    """Built-in names, then those of other packages. A built-in name cannot be taken over."""
    others = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return [*_BUILT_IN, *sorted(others - set(_BUILT_IN))]


def load_task(name: str) -> type[Task]:
    """The class of a task. UsageError names a close one, or says why a package's task cannot be used."""
    normal = name.replace("-", "_").lower()
    if normal in _BUILT_IN:
        module = importlib.import_module(f"deepinfer_cli.eval.tasks.{normal}")
        found: type[Task] = module.TASK
        return found
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name in (name, normal):
            return _load_foreign(point.name, point)
    close = get_close_matches(normal, task_names(), n=1)
    hint = f"did you mean {close[0]}?" if close else f"tasks: {', '.join(task_names())}"
    raise UsageError(f"there is no task {name!r}", hint)


def _load_foreign(name: str, point: object) -> type[Task]:
    try:
        found = point.load()  # type: ignore[attr-defined]
    except Exception as error:
        raise UsageError(f"task {name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, type) or not issubclass(found, Task):
        raise UsageError(f"task {name}: its entry point is not a subclass of Task", "docs/reference/eval.md")
    return found
