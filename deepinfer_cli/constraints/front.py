"""From what was asked for to what the engine compiles; everything it could get wrong is refused here."""

from __future__ import annotations

import json

from deepinfer_cli.constraints.types import (
    CheckSpec,
    ConstraintError,
    ConstraintOptions,
    ConstraintSpec,
    Prepared,
)


def prepare(spec: ConstraintSpec, options: ConstraintOptions) -> Prepared:
    """Raises ConstraintError. Pure: the same answer from any thread or process, without a model."""
    check = CheckSpec(spec.kind, spec.source, spec.syntax)
    if spec.kind == "regex":
        from deepinfer_cli.constraints import regex

        return Prepared(regex.lark(spec.source), check)
    if spec.kind == "choice":
        from deepinfer_cli.constraints import choice

        return Prepared(choice.lark(spec.source), check)
    if spec.kind == "json_object":
        grammar = json.dumps({"grammars": [{"json_schema": {"type": "object"}}]})
        return Prepared(grammar, check)
    if spec.kind == "grammar":
        from deepinfer_cli.constraints import ebnf

        return Prepared(ebnf.translate(spec.source, spec.syntax), check)
    raise ConstraintError("unsupported_schema", f"{spec.kind} is not enforced")
