"""`deepinfer completion SHELL`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from deepinfer_cli.help import PanelCommand

COMMAND_CLASS = PanelCommand
COMPLETION_VARIABLE: Final = "_DEEPINFER_COMPLETE"  # set by the printed scripts when they ask


def command(
    ctx: typer.Context,
    shell: Annotated[
        Literal["bash", "zsh", "fish"],
        typer.Argument(metavar="SHELL", help="bash, zsh or fish"),
    ],
) -> None:
    """Print a completion script, for example: deepinfer completion bash >> ~/.bashrc"""
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="deepinfer", complete_var=COMPLETION_VARIABLE, shell=shell)
    ctx.obj.print_data(script)
