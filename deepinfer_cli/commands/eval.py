"""`deepinfer eval`: flags to an evaluation, nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from deepinfer_cli.commands.options import (
    CONFIG_PANEL,
    SettingsCommand,
    flag_uses,
    setting_parameters,
    with_settings,
)
from deepinfer_cli.config import environment
from deepinfer_cli.config.layers import resolve
from deepinfer_cli.console import Console, talk_of
from deepinfer_cli.errors import UsageError

COMMAND_CLASS = SettingsCommand

_EVAL_PANEL = "Evaluation"
_JUDGE_PANEL = "Judge (for answers that no rule can compare)"
_QUALITY_PANEL = "Perplexity and comparison with a reference (`deepinfer eval ppl`)"

_WITHOUT = (
    *("logprobs", "top_logprobs", "prompt_logprobs", "return_token_ids", "max_failures"),
    *("errors", "run_file", "timing", "output_format", "order", "stop", "stop_token_ids", "include_stop"),
    *("ignore_eos", "logit_bias", "fsync"),
)
_HELPS = {
    "n": "Samples per problem; default is the task's (16 for aime, 8 for gpqa_diamond)",
    "output": "Folder for samples, summary and report; default is eval-TASK-MODEL here",
    "overwrite": "Replace an evaluation in that folder",
    "limit": "Only the first N problems; the result is stamped partial",
    "max_tokens": "Longest output; default is the task's or the model's evaluation setting",
}


def _parameters() -> list[Any]:
    rows = [p for p in setting_parameters(("rows",), helps=_HELPS) if p.name == "limit"]
    return [
        *rows,
        *setting_parameters(("model", "sampling", "output", "engine"), without=_WITHOUT, helps=_HELPS),
    ]


def _option(name: str, help: str, panel: str = _EVAL_PANEL, metavar: str | None = None) -> Any:
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel=panel, show_default=False)


def _command(
    ctx: typer.Context,
    task: Annotated[
        list[str] | None,
        typer.Argument(metavar="TASK", help="A task; or `list`; or `compare A B`; or `ppl TEXT...`"),
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
    data: Annotated[
        str | None,
        _option("--data", "Data in the published form: JSONL, JSON, CSV or Parquet", metavar="FILE"),
    ] = None,
    data_revision: Annotated[
        str | None,
        _option("--data-revision", "Commit, tag or branch of the data set on the hub", metavar="REV"),
    ] = None,
    scorer: Annotated[
        str | None,
        _option("--scorer", "Scorer of custom problems that name none; default exact", metavar="NAME"),
    ] = None,
    shuffle_seed: Annotated[
        str | None, _option("--shuffle-seed", "Seed of the order of choices [default: 0]", metavar="N")
    ] = None,
    template_arg: Annotated[
        list[str] | None,
        _option("--template-arg", "Argument of the chat template, such as thinking=true", metavar="KEY=JSON"),
    ] = None,
    second_opinion: Annotated[
        str | None,
        _option("--second-opinion", "math-verify beside our rules [default: auto]", metavar="auto|on|off"),
    ] = None,
    resume: Annotated[bool, _option("--resume", "Go on with the evaluation in the folder")] = False,
    rescore: Annotated[
        str | None, _option("--rescore", "Decide the verdicts in DIR anew; needs no model", metavar="DIR")
    ] = None,
    min_score: Annotated[
        str | None, _option("--min-score", "Exit 4 below this score: 0.8 or 80%", metavar="X")
    ] = None,
    judge: Annotated[
        str | None,
        _option(
            "--judge", "OpenAI-compatible endpoint, or `local` for the evaluated model", _JUDGE_PANEL, "URL"
        ),
    ] = None,
    judge_model: Annotated[
        str | None, _option("--judge-model", "Name of the judge at its endpoint", _JUDGE_PANEL, "NAME")
    ] = None,
    judge_timeout: Annotated[
        str | None,
        _option("--judge-timeout", "Patience with one judgement [default: 120]", _JUDGE_PANEL, "S"),
    ] = None,
    reference: Annotated[
        str | None,
        _option(
            "--reference", "Base model: also KL divergence and top-1 agreement", _QUALITY_PANEL, "NAME|PATH"
        ),
    ] = None,
    reference_precision: Annotated[
        str | None,
        _option("--reference-precision", "Arithmetic of the base model [default: fp32]", _QUALITY_PANEL, "P"),
    ] = None,
    window: Annotated[
        str | None, _option("--window", "Tokens scored at once [default: 512]", _QUALITY_PANEL, "N")
    ] = None,
    beside: Annotated[
        str | None, _option("--beside", "Further precisions to print beside", _QUALITY_PANEL, "P,...")
    ] = None,
    **settings: Any,
) -> int:
    """Evaluate a model on a task, with honest scores.

    `deepinfer eval smoke` runs offline. `deepinfer eval list` lists the tasks. stdout is the folder with
    the results: summary.json, samples.jsonl, config.yaml and report.html, a page to read every sample.

    `deepinfer eval compare A B` compares two such folders. `deepinfer eval ppl` measures perplexity on
    texts of ours and on the files named. `--rescore DIR` applies the scoring rules again.
    """
    console: Console = ctx.obj
    resolved = resolve(flag_uses(ctx), environ=os.environ, config_file=config, profile=profile)
    console.configure(talk_of(resolved.config))
    for key, message, hint in environment.warnings_about(os.environ):
        console.once(key, message, hint=hint)
    for note in resolved.notes:
        console.warn(note)
    console.guard_stdout()
    from deepinfer_cli.eval import verbs

    options = verbs.Options(
        data=data,
        data_revision=data_revision,
        scorer=scorer,
        shuffle_seed=verbs.integer("--shuffle-seed", shuffle_seed, 0),
        template_args=verbs.template_args(template_arg or []),
        opinion=verbs.opinion_mode(second_opinion),
        resume=resume,
        min_score=verbs.share(min_score),
        judge=judge,
        judge_model=judge_model,
        judge_timeout_s=verbs.seconds("--judge-timeout", judge_timeout, 120.0),
        reference=reference,
        reference_precision=reference_precision,
        beside=beside,
        window=verbs.integer("--window", window, 512, minimum=2),
    )
    words = list(task or ())
    if rescore is not None:
        if words:
            raise UsageError(
                "--rescore takes the task from its folder", f"deepinfer eval --rescore {rescore}"
            )
        return verbs.rescore(Path(rescore), options, console)
    return verbs.dispatch(words, resolved.config, options, console)


command = with_settings(_command, _parameters)
