"""Constraints of measured cells: texts that cannot end before their length, so that lengths stay exact."""

from __future__ import annotations

import json
from typing import Any, Final

from deepinfer_cli.constraints.backend import ConstraintBackend
from deepinfer_cli.constraints.cache import Compiled, ConstraintCompiler
from deepinfer_cli.constraints.types import ConstraintOptions, ConstraintSpec
from deepinfer_cli.errors import UsageError
from deepinfer_cli.models.types import LoadedModel

_ENDLESS: Final = 10_000  # items or keys: more than anybody measures tokens
_ITEM: Final = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 24}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}
_SCHEMAS: Final[dict[str, Any]] = {
    "json_object": {"type": "object", "minProperties": _ENDLESS},
    "json_schema": {"type": "array", "items": _ITEM, "minItems": _ENDLESS},
}
_PATTERN: Final = r"[ -~\n]+"


def _spec(name: str) -> ConstraintSpec:
    if name == "regex":
        return ConstraintSpec("regex", _PATTERN)
    return ConstraintSpec("json_schema", json.dumps(_SCHEMAS[name]))


def template_of(model: LoadedModel, name: str) -> Any:
    """What requests of the cell get; None for `none`."""
    if name == "none":
        return None
    found = ConstraintCompiler(ConstraintBackend(model), ConstraintOptions()).get(_spec(name))
    if not isinstance(found, Compiled):
        raise UsageError(f"constraint {name}: {found.message}")
    return found.template
