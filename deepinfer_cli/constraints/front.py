"""From what was asked for to what the engine compiles; everything it could get wrong is refused here."""

from __future__ import annotations

from typing import Final

from deepinfer_cli.constraints.types import (
    CheckSpec,
    ConstraintError,
    ConstraintOptions,
    ConstraintSpec,
    Prepared,
)

MAX_UNICODE_CLASSES: Final = 6_000  # as they are written for the engine, which needs some 50 us for each
_UNICODE_CLASSES: Final = (r"\p{", r"\P{", r"\w", r"\W")


def prepare(spec: ConstraintSpec, options: ConstraintOptions) -> Prepared:
    """Raises ConstraintError. Pure: the same answer from any thread or process, without a model."""
    prepared = _prepare(spec, options)
    num_classes = sum(map(prepared.grammar.count, _UNICODE_CLASSES))
    if num_classes > MAX_UNICODE_CLASSES:
        what = f"{num_classes:,} classes of Unicode characters, {MAX_UNICODE_CLASSES:,} are taken"
        raise ConstraintError("unsupported_schema", f"the constraint is too large for the engine: {what}")
    return prepared


def _prepare(spec: ConstraintSpec, options: ConstraintOptions) -> Prepared:
    check = CheckSpec(spec.kind, spec.source, spec.syntax)
    if spec.kind == "regex":
        from deepinfer_cli.constraints import regex

        return Prepared(regex.lark(spec.source), check)
    if spec.kind == "choice":
        from deepinfer_cli.constraints import choice

        return Prepared(choice.lark(spec.source), check)
    if spec.kind in ("json_schema", "json_object"):
        from deepinfer_cli.constraints import json_schema

        source = spec.source if spec.kind == "json_schema" else '{"type": "object"}'
        grammar, not_enforced = json_schema.grammar(source, options)
        return Prepared(grammar, check, not_enforced)
    if spec.kind == "grammar":
        from deepinfer_cli.constraints import ebnf

        return Prepared(ebnf.translate(spec.source, spec.syntax), check)
    raise ConstraintError("unsupported_schema", f"{spec.kind} is not enforced")


def explained(spec: ConstraintSpec, options: ConstraintOptions, error: ConstraintError) -> ConstraintError:
    """The engine's refusal of what `prepare` has let through, with the place in the schema."""
    if spec.kind != "json_schema":
        return error
    from deepinfer_cli.constraints import json_schema

    return json_schema.refusal(spec.source, options, error)
