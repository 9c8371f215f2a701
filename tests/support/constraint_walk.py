"""Texts walked through a compiled constraint token by token, as generation would make them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

from deepinfer_cli.constraints.backend import ConstraintBackend
from deepinfer_cli.constraints.cache import ConstraintCompiler
from deepinfer_cli.constraints.types import ConstraintError, ConstraintOptions, ConstraintSpec
from deepinfer_cli.models.fake import FakeModel

CASES = Path(__file__).parent.parent / "cases" / "structured"
Verdict = Literal["accepted", "refused", "incomplete"]


@cache
def byte_model() -> FakeModel:
    """Every byte is a token, so that each walk visits every state of the constraint."""
    return FakeModel()


@cache
def byte_backend() -> ConstraintBackend:
    return ConstraintBackend(byte_model())


def cases(name: str) -> list[dict[str, Any]]:
    lines = (CASES / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def compiled(kind: str, source: str, *, options: ConstraintOptions | None = None, **spec: Any) -> Any:
    """The engine's template; ConstraintError when it is refused."""
    compiler = ConstraintCompiler(byte_backend(), options or ConstraintOptions())
    found = compiler.get(ConstraintSpec(kind, source, **spec))
    if isinstance(found, ConstraintError):
        raise found
    return found.template


def walk(template: Any, text: str) -> Verdict:
    """What becomes of a model that writes just this text, the mask read before each token."""
    matcher = template.clone()
    size = byte_model().tokenizer.vocab_size
    for token in text.encode():
        mask = matcher.mask(size)
        if not mask[token >> 3] >> (token & 7) & 1:
            return "refused"
        assert matcher.accept(token), matcher.error()
    return "accepted" if matcher.is_accepting() else "incomplete"
