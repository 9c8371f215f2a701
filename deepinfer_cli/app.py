"""The command table. Modules of commands are imported only when their command is used, so that
`deepinfer --help` stays quick.

To add a command, add a line to COMMANDS and a module `deepinfer_cli/commands/NAME.py` with a function
`command(ctx: typer.Context, ...)` that Typer can read; its docstring is the help text. It finds the process's
Console in `ctx.obj`, set up from the options -q, -v, --color and --progress, which it gets without declaring
them. It returns nothing, or its exit code; failures are raised as DeepInferError. A module with a
COMMAND_CLASS brings its own command class, and all options itself.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup


class CommandEntry(NamedTuple):
    module: str  # under deepinfer_cli.commands
    summary: str  # one line for `deepinfer --help`


COMMANDS: dict[str, CommandEntry] = {
    "run": CommandEntry("run", "Run a model over rows of JSON Lines"),
    "bench": CommandEntry("bench", "Measure speed: one point, a sweep, kernels; compare and plot runs"),
    "eval": CommandEntry("eval", "Evaluate a model on a task, or its perplexity on texts"),
    "download": CommandEntry("download", "Fetch a model into the cache and print its path"),
    "build": CommandEntry("build", "Rebuild the native core and check its kernels"),
    "doctor": CommandEntry("doctor", "Look at machine, build, models and settings; name what blocks a run"),
    "completion": CommandEntry("completion", "Print a completion script for bash, zsh or fish"),
}


CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


def load_command(name: str) -> Any:
    """The click command of an entry of COMMANDS; imports its module."""
    from deepinfer_cli.help import PanelCommand

    module = importlib.import_module(f"deepinfer_cli.commands.{COMMANDS[name].module}")
    function = module.command
    if not hasattr(module, "COMMAND_CLASS"):
        from deepinfer_cli.commands.talk_options import with_talk

        function = with_talk(function)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    kind = getattr(module, "COMMAND_CLASS", PanelCommand)
    single.command(name, cls=kind, context_settings=CONTEXT_SETTINGS)(function)
    return typer.main.get_command(single)


class LazyGroup(TyperGroup):
    """`deepinfer COMMAND`: lists from the table, imports on use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT_SETTINGS,
)


def _print_version(as_json: bool) -> None:
    from deepinfer_cli.version import version_json, version_line

    typer.echo(version_json() if as_json else version_line())


@app.callback(
    invoke_without_command=True,
    help="Offline batch inference: rows of JSON Lines in, rows of JSON Lines out.",
    epilog="`deepinfer COMMAND --help` lists a command's options.",
)
def root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print version and build, and exit")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --version: as JSON")] = False,
) -> None:
    if version:
        _print_version(as_json)
        raise typer.Exit
    if as_json:
        raise typer.BadParameter("goes with --version", param_hint="--json")
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit
