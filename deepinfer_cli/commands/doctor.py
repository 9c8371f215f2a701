"""`deepinfer doctor`: what a run on this machine would find, and what would stop it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from deepinfer_cli.console import Console
from deepinfer_cli.errors import EXIT_FATAL, EXIT_OK


def command(
    ctx: typer.Context,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="NAME|PATH", help="Also open and plan this model")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object")] = False,
) -> int:
    """Look at the machine, the build, the cache and the settings; exit with 1 when something blocks a run."""
    console: Console = ctx.obj
    console.guard_stdout()
    from deepinfer_cli import checkup

    report = checkup.examine(model)
    if as_json:
        console.print_data(json.dumps(report.as_json(), ensure_ascii=False))
    else:
        for line in report.lines():
            console.print_data(line)
    return EXIT_FATAL if report.blockers else EXIT_OK
