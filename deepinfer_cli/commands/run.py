"""`deepinfer run`: flags to RunConfig, nothing else."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepinfer_cli.commands.options import CONFIG_PANEL, SettingsCommand, flag_uses, with_settings
from deepinfer_cli.config import environment
from deepinfer_cli.config.layers import print_config as config_text
from deepinfer_cli.config.layers import resolve
from deepinfer_cli.console import Console, talk_of
from deepinfer_cli.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from deepinfer_cli.config.run_config import Action, RunConfig

COMMAND_CLASS = SettingsCommand

CHECK_PANEL = "Check without running"
RESUME_PANEL = "After an interruption"


def _action(dry_run: bool, validate: bool, show_tokens: bool) -> Action:
    if dry_run and validate:
        raise UsageError("--dry-run and --validate exclude each other", "--dry-run also tokenises and plans")
    if show_tokens and not dry_run:
        raise UsageError("--show-tokens goes with --dry-run", "add --dry-run")
    return "dry_run" if dry_run else "validate" if validate else "run"


def _check_resume(config: RunConfig) -> None:
    if config.force and not config.resume:
        raise UsageError("--force goes with --resume", "--overwrite replaces an output")
    if not config.resume:
        return
    if config.action != "run":
        raise UsageError("--resume runs rows; --validate and --dry-run do not", "leave one of them out")
    if config.output.overwrite:
        raise UsageError(
            "--resume and --overwrite exclude each other", "one keeps the output, one replaces it"
        )
    if config.output.output in (None, "-"):
        raise UsageError("--resume needs an output file: standard output cannot be read back", "add -o FILE")


def _refuse_log_over_rows(config: RunConfig, inputs: list[str]) -> None:
    """Before the log is opened: even the message that refuses it would be appended."""
    out = config.output
    if out.log_file is None:
        return
    log = Path(out.log_file)
    for path in (*inputs, out.output, out.errors, out.run_file):
        if path is None:
            continue
        rows = Path(path)
        if rows.resolve() == log.resolve() or (rows.exists() and log.exists() and rows.samefile(log)):
            raise UsageError(f"{log} is both the log file and {path}", "--log-file names another file")


def _say_notes(console: Console, notes: tuple[str, ...]) -> None:
    for key, message, hint in environment.warnings_about(os.environ):
        console.once(key, message, hint=hint)
    for note in notes:
        console.warn(note)


@with_settings
def command(
    ctx: typer.Context,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPTS", help="Files of rows, quoted globs, or - for stdin"),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="YAML file with settings", rich_help_panel=CONFIG_PANEL
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="NAME", help="Section of the config file", rich_help_panel=CONFIG_PANEL
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any setting by its name in the config file; repeatable, the last one wins",
            rich_help_panel=CONFIG_PANEL,
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print the resolved settings and where each came from, and exit",
            rich_help_panel=CONFIG_PANEL,
        ),
    ] = False,
    validate: Annotated[
        bool,
        typer.Option("--validate", help="Check every row; needs no model", rich_help_panel=CHECK_PANEL),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Also render and tokenise, count tokens and plan memory; loads no weights",
            rich_help_panel=CHECK_PANEL,
        ),
    ] = False,
    show_tokens: Annotated[
        bool,
        typer.Option(
            "--show-tokens", help="With --dry-run: print each row's tokens", rich_help_panel=CHECK_PANEL
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the output of an earlier run: keep what is there, run the rest",
            rich_help_panel=RESUME_PANEL,
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="With --resume: run again what settings or input have changed, instead of refusing",
            rich_help_panel=RESUME_PANEL,
        ),
    ] = False,
    **settings: Any,
) -> int:
    """Run a model over rows of JSON Lines and write one result row per row.

    Each row has `prompt` (raw text), `messages` (through the chat template), `prompt_token_ids`, or an
    OpenAI batch envelope, an `id`, and sampling parameters of its own if it wants. Bad rows become error
    rows and the run goes on; exit code 3 says that there were some.

    Rows come out in input order. With `--order completion` they come out as they finish; `id` and `index`
    tell which is which.
    """
    console: Console = ctx.obj
    action = _action(dry_run, validate, show_tokens)
    resolved = resolve(flag_uses(ctx), environ=os.environ, config_file=config, profile=profile)
    _refuse_log_over_rows(resolved.config, prompts or [])
    talk = talk_of(resolved.config)
    console.configure(replace(talk, log_file=None) if print_config else talk)
    _say_notes(console, resolved.notes)
    run_config = replace(
        resolved.config,
        inputs=tuple(prompts or ()),
        action=action,
        show_tokens=show_tokens,
        resume=resume,
        force=force,
    )
    _check_resume(run_config)
    if print_config:
        console.print_data(config_text(run_config))
        return 0
    if not run_config.inputs:
        raise UsageError("no rows given", "deepinfer run prompts.jsonl, or `-` to read them from stdin")
    if run_config.engine.accelerator != "cpu":
        raise ConfigError(
            f"accelerator {run_config.engine.accelerator} cannot run rows: this build computes on the CPU",
            f"it was set by {run_config.origin('accelerator')}; --accelerator cpu overrides that",
        )
    console.guard_stdout()
    from deepinfer_cli.engine import batch_run

    return batch_run.run(run_config, console)
