"""The options -q, -v, --color and --progress, which every command without a run config gets from here."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Final

import typer

from deepinfer_cli.commands.options import PANELS
from deepinfer_cli.config import environment
from deepinfer_cli.config.layers import FlagUse, resolve
from deepinfer_cli.config.settings import all_settings
from deepinfer_cli.console import Console, Talk, talk_of

_KEYS: Final = ("quiet", "verbose", "color", "progress")


def _annotation(key: str) -> Any:
    spec = all_settings()[key]
    details: dict[str, Any] = {"help": spec.help, "rich_help_panel": PANELS["output"], "show_default": False}
    if spec.kind == "bool":
        return Annotated[bool, typer.Option(*spec.flags, **details)]
    if spec.kind == "int":
        return Annotated[int, typer.Option(*spec.flags, count=True, **details)]
    return Annotated[str | None, typer.Option(*spec.flags, metavar="|".join(spec.choices), **details)]


def with_talk(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command function the options, and see to it that its console talks as they say.

    The function declares `ctx: typer.Context` and finds the console, ready, in `ctx.obj`.
    """
    signature = inspect.signature(function, eval_str=True)
    none_of = {"bool": False, "int": 0, "choice": None}
    extra = [
        inspect.Parameter(
            key,
            inspect.Parameter.KEYWORD_ONLY,
            default=none_of[all_settings()[key].kind],
            annotation=_annotation(key),
        )
        for key in _KEYS
    ]
    parameters = [*signature.parameters.values(), *extra]

    @functools.wraps(function)
    def call(ctx: typer.Context, **arguments: Any) -> Any:
        set_up(ctx.obj, {key: arguments.pop(key) for key in _KEYS})
        return function(ctx=ctx, **arguments)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call


def set_up(console: Console, given: dict[str, Any]) -> None:
    """Make the console talk as these options and the environment say; stdout is taken for data."""
    uses = [FlagUse(key, all_settings()[key].flags[0], value) for key, value in given.items() if value]
    names = {
        all_settings()[f.name].env for f in fields(Talk)
    }  # a bad DEEPINFER_SEED is not our business here
    resolved = resolve(uses, environ={k: v for k, v in os.environ.items() if k in names})
    console.configure(talk_of(resolved.config))
    for key, message, hint in environment.warnings_about(os.environ):
        console.once(key, message, hint=hint)
    console.guard_stdout()
