"""`deepinfer bench`: flags to a measurement, nothing else."""

from __future__ import annotations

import inspect
import os
from typing import Annotated, Any

import typer

from deepinfer_cli.commands.options import (
    CONFIG_PANEL,
    SettingsCommand,
    flag_uses,
    setting_option,
    setting_parameters,
    with_settings,
)
from deepinfer_cli.config import environment
from deepinfer_cli.config.layers import resolve
from deepinfer_cli.console import Console, talk_of
from deepinfer_cli.errors import UsageError

COMMAND_CLASS = SettingsCommand

_BENCH_PANEL = "Benchmark"
_LOAD_PANEL = "Load (of one point; with --sweep the same in every cell)"
_WITHOUT = (
    *("errors", "run_file", "timing", "output_format", "order", "output", "overwrite", "return_token_ids"),
    *("passthrough", "max_failures"),
)


def _option(name: str, help: str, panel: str = _BENCH_PANEL, metavar: str | None = None) -> Any:
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel=panel, show_default=False)


def _parameters() -> list[Any]:
    from deepinfer_cli.bench.spec import load_settings

    loads = [
        inspect.Parameter(
            f"load_{s.key}",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=setting_option(s, _LOAD_PANEL),
        )
        for s in load_settings().values()
        if s.flags
    ]
    return [*loads, *setting_parameters(("model", "engine", "output"), without=_WITHOUT)]


def _load_values(settings: dict[str, Any]) -> dict[str, Any]:
    """Keys of the load that flags set, checked."""
    from deepinfer_cli.bench.spec import load_settings
    from deepinfer_cli.config.values import check_value, read_scalar

    found = {}
    for spec in load_settings().values():
        text = settings.get(f"load_{spec.key}")
        if text is None:
            continue
        try:
            found[spec.key] = check_value(spec, read_scalar(spec, text).value)
        except ValueError as error:
            raise UsageError(f"{spec.flags[0]} {error}") from None
    return found


def _command(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE.yaml", help="With --sweep: the sweep; or `compare A B`, `plot RUN`, `kernels`"
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="YAML file with settings", rich_help_panel=CONFIG_PANEL
        ),
    ] = None,
    profile: Annotated[
        str | None, _option("--profile", "Section of the config file", CONFIG_PANEL, "NAME")
    ] = None,
    set_: Annotated[
        list[str] | None,
        _option("--set", "Any setting by its name in the config file; repeatable", CONFIG_PANEL, "KEY=VALUE"),
    ] = None,
    sweep: Annotated[
        bool, _option("--sweep", "Measure many cells: those of FILE.yaml, or the built-in ones")
    ] = False,
    from_: Annotated[
        str | None,
        _option("--from", "Rows of your own in place of made prompts", metavar="PROMPTS.jsonl"),
    ] = None,
    slo: Annotated[
        list[str] | None,
        _option("--slo", "Limits of a good request in ms: ttft, tpot, e2e", metavar="ttft=500,tpot=50"),
    ] = None,
    price_per_hour: Annotated[
        str | None, _option("--price-per-hour", "Price of this machine: adds cost per token", metavar="X")
    ] = None,
    budget: Annotated[
        str | None,
        _option("--budget", "Time for all repetitions, such as 90s or 20m [default: 8m]", metavar="TIME"),
    ] = None,
    format_: Annotated[
        str | None,
        _option(
            "--format",
            "Output [default: table on a terminal, md elsewhere]; of plot svg or png",
            metavar="table|md|csv|json|jsonl",
        ),
    ] = None,
    save: Annotated[
        str | None,
        _option(
            "--save", "Folder for all forms and the report; --sweep without it: bench-MODEL", metavar="DIR"
        ),
    ] = None,
    resume: Annotated[
        bool, _option("--resume", "Go on with the run in the folder; failed cells are tried again")
    ] = False,
    overwrite: Annotated[bool, _option("--overwrite", "Replace the run in the folder")] = False,
    dry_run: Annotated[
        bool, _option("--dry-run", "List the cells and an estimate of the time; runs nothing")
    ] = False,
    against: Annotated[
        str | None,
        _option(
            "--against",
            "A peer on the same prompts, in turns: llama.cpp, openvino, or an OpenAI-compatible server",
            metavar="llama.cpp|openvino|URL",
        ),
    ] = None,
    peer_model_: Annotated[
        str | None,
        _option(
            "--peer-model",
            "The peer's model: another GGUF file, an OpenVINO folder, or the server's name of it",
            metavar="FILE|DIR|NAME",
        ),
    ] = None,
    force: Annotated[
        bool, _option("--force", "compare: also what may not be compared, with the reasons")
    ] = False,
    **settings: Any,
) -> int:
    """Measure speed with numbers that can be believed.

    `deepinfer bench` measures one point, `deepinfer bench --sweep` a grid, in this process on the real
    engine: exact lengths, unique prompts, every token timed by the engine, repetitions with an interval, and
    the machine's own limits beside every cell.

    `deepinfer bench compare A B` compares two saved runs, `deepinfer bench plot RUN` draws one, and
    `deepinfer bench kernels` measures each kernel at the model's shapes.
    """
    console: Console = ctx.obj
    resolved = resolve(flag_uses(ctx), environ=os.environ, config_file=config, profile=profile)
    console.configure(talk_of(resolved.config))
    for key, message, hint in environment.warnings_about(os.environ):
        console.once(key, message, hint=hint)
    for note in resolved.notes:
        console.warn(note)
    console.guard_stdout()
    from deepinfer_cli.bench import verbs

    options = verbs.Options(
        words=words or (),
        sweep=sweep,
        rows=from_,
        load=_load_values(settings),
        slo=verbs.slo_of(slo or []),
        price_per_hour=verbs.price(price_per_hour),
        budget_s=verbs.duration(budget),
        form=verbs.form_of(format_, words or ()),
        save=save,
        resume=resume,
        overwrite=overwrite,
        dry_run=dry_run,
        force=force,
        against=against,
        peer_model=peer_model_,
    )
    return verbs.dispatch(resolved.config, options, console)


command = with_settings(_command, _parameters)
