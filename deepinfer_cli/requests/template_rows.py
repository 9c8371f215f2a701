"""--template FILE: a prompt made from the row's columns, in the same budgeted sandbox as chat templates."""

from __future__ import annotations

from typing import Any

from deepinfer_cli.requests.types import FieldError

MAX_PROMPT_CHARS = 32 << 20


class RowTemplate:
    """Compiled once. Raises ValueError when the template itself is broken."""

    def __init__(self, source: str) -> None:
        import jinja2

        from deepinfer_cli.prompts.sandbox import Environment

        self._environment = Environment(undefined=jinja2.StrictUndefined)
        try:
            self._template = self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"line {error.lineno}: {error.message}") from None
        except (jinja2.TemplateError, RecursionError) as error:
            raise ValueError(str(error)) from None

    def render(self, row: dict[str, Any]) -> str:
        """The row's columns are both names of their own and entries of `row`."""
        names = {"row": row, **{name: value for name, value in row.items() if name != "row"}}
        try:
            return self._environment.run(self._template, names, MAX_PROMPT_CHARS)
        except RecursionError:
            raise FieldError("bad_param", "--template: it nests without end") from None
        except Exception as error:  # an expression of the template can raise whatever it likes
            name = "" if type(error).__module__.startswith(("jinja2", "deepinfer")) else type(error).__name__
            raise FieldError("bad_param", f"--template: {name}{': ' if name else ''}{error}") from None
