"""How many patterns one text has to fit at once: the time that the engine needs doubles with each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deepinfer_cli.constraints.types import ConstraintError

MAX_TOGETHER: Final = 8


def check_together(root: Any, defs: Mapping[str, Any], places: Mapping[str, str]) -> None:
    """For a schema as it is written for the engine. `places`: JSON pointers of what defs holds."""
    known: dict[str, int] = {}
    for name in (None, *defs):
        node = root if name is None else defs[name]
        pointer = "" if name is None else places[name]
        waiting = [node]
        while waiting:
            part = waiting.pop()
            if isinstance(part, dict):
                if _num_patterns(part, defs, known) > MAX_TOGETHER:
                    message = f"more than {MAX_TOGETHER} patterns for one text are not enforced"
                    raise ConstraintError("unsupported_schema", message, pointer)
                waiting += part.values()
            elif isinstance(part, list):
                waiting += part


def _num_patterns(node: Any, defs: Mapping[str, Any], known: dict[str, int]) -> int:
    """That a string here has to fit, in the worst of its alternatives."""
    if not isinstance(node, dict):
        return 0
    own = int(isinstance(node.get("pattern"), str)) + int(isinstance(node.get("format"), str))
    name = node.get("$ref")
    if isinstance(name, str):
        name = name.removeprefix("#/$defs/")
        if name not in known:
            known[name] = 0  # where it refers to itself
            known[name] = _num_patterns(defs.get(name), defs, known)
        own += known[name]
    for part in _parts(node, "allOf"):
        own += _num_patterns(part, defs, known)
    for key in ("anyOf", "oneOf"):
        own += max((_num_patterns(part, defs, known) for part in _parts(node, key)), default=0)
    return own


def _parts(node: Mapping[str, Any], key: str) -> list[Any]:
    found = node.get(key)
    return found if isinstance(found, list) else []
