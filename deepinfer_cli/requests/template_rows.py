"""--template FILE: a prompt made from the row's columns, in the same budgeted sandbox as chat templates."""

from __future__ import annotations

from typing import Any

from deepinfer_cli.errors import in_short
from deepinfer_cli.requests.types import FieldError

MAX_PROMPT_CHARS = 32 << 20


class RowTemplate:
    """Compiled once. Raises ValueError when the template itself is broken."""

    def __init__(self, source: str) -> None:
        import jinja2

        from deepinfer_cli.prompts.sandbox import Environment

        self._environment = Environment(undefined=jinja2.StrictUndefined)
        self._template, _ = self._environment.load(source)

    def render(self, row: dict[str, Any]) -> str:
        """The row's columns are both names of their own and entries of `row`."""
        names = {"row": row, **{name: value for name, value in row.items() if name != "row"}}
        try:
            text = self._environment.run(self._template, names, MAX_PROMPT_CHARS)
            text.encode()
            return text
        except UnicodeEncodeError:
            raise FieldError("bad_encoding", "--template makes text that is not valid Unicode") from None
        except RecursionError:
            raise FieldError("bad_param", "--template: it nests without end") from None
        except Exception as error:  # an expression of the template can raise whatever it likes
            name = "" if type(error).__module__.startswith(("jinja2", "deepinfer")) else type(error).__name__
            what = in_short(f"{name}{': ' if name else ''}{error}")
            raise FieldError("bad_param", f"--template: {what}") from None
