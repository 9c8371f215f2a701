"""The options -q, -v, --color and --progress for commands that have no run config.

def command(ctx: typer.Context, quiet: Quiet = False, verbose: Verbose = 0, color: Color = None) -> None:
    console = console_of(ctx, quiet=quiet, verbose=verbose, color=color)
"""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Annotated

import typer

from deepinfer_cli.commands.options import PANELS
from deepinfer_cli.config import environment
from deepinfer_cli.config.layers import FlagUse, resolve
from deepinfer_cli.config.settings import all_settings
from deepinfer_cli.console import Console, Talk, talk_of

_PANEL = PANELS["output"]

Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Only warnings and errors", rich_help_panel=_PANEL)
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, help="Say more; twice says even more", rich_help_panel=_PANEL
    ),
]
Color = Annotated[
    str | None,
    typer.Option("--color", metavar="auto|always|never", help="Colour on stderr", rich_help_panel=_PANEL),
]
ProgressOption = Annotated[
    str | None,
    typer.Option(
        "--progress",
        metavar="auto|bar|plain|json|none",
        help="Progress on stderr",
        rich_help_panel=_PANEL,
    ),
]


def console_of(
    ctx: typer.Context,
    *,
    quiet: bool = False,
    verbose: int = 0,
    color: str | None = None,
    progress: str | None = None,
) -> Console:
    """The process's console, talking as these options and the environment say; stdout is taken for data."""
    given = {
        "quiet": ("--quiet", quiet or None),
        "verbose": ("--verbose", verbose or None),
        "color": ("--color", color),
        "progress": ("--progress", progress),
    }
    uses = [FlagUse(key, flag, value) for key, (flag, value) in given.items() if value is not None]
    names = {
        all_settings()[f.name].env for f in fields(Talk)
    }  # a bad DEEPINFER_SEED is not our business here
    resolved = resolve(uses, environ={k: v for k, v in os.environ.items() if k in names})
    console: Console = ctx.obj
    console.configure(talk_of(resolved.config))
    for key, message, hint in environment.warnings_about(os.environ):
        console.once(key, message, hint=hint)
    console.guard_stdout()
    return console
