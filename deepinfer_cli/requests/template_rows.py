"""--template FILE: a prompt made from the row's columns by a Jinja template in the immutable sandbox."""

from __future__ import annotations

import json
from typing import Any

from deepinfer_cli.requests.types import FieldError

MAX_RENDERED_CHARS = 16 << 20


class RowTemplate:
    """Compiled once. Raises ValueError when the template itself is broken."""

    def __init__(self, source: str) -> None:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        self._errors = jinja2.TemplateError
        environment = ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, keep_trailing_newline=False, autoescape=False
        )
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"line {error.lineno}: {error.message}") from None

    def render(self, row: dict[str, Any]) -> str:
        """The row's columns are both names of their own and entries of `row`."""
        pieces: list[str] = []
        size = 0
        try:
            for piece in self._template.generate({"row": row, **row}):
                pieces.append(piece)
                size += len(piece)
                if size > MAX_RENDERED_CHARS:
                    raise FieldError("bad_param", "--template makes a prompt of over 16 Mi characters")
        except FieldError:
            raise
        except self._errors as error:
            raise FieldError("bad_param", f"--template: {error}") from None
        except Exception as error:  # a template can raise whatever its expressions raise
            raise FieldError("bad_param", f"--template: {type(error).__name__}: {error}") from None
        return "".join(pieces)
