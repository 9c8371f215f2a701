"""What `deepinfer eval` can do, one function each: a task, list, compare, ppl, --rescore."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.errors import EXIT_OK, EXIT_ROWS_FAILED, EXIT_SCORE_MISSED, ConfigError, UsageError
from deepinfer_cli.eval import finish, identity
from deepinfer_cli.eval.finish import Finish, Judge, OpinionMode
from deepinfer_cli.eval.runner import ROWS, RUN_FILE, EvalPlan, ask
from deepinfer_cli.eval.samples import SAMPLES
from deepinfer_cli.eval.show import percent, table
from deepinfer_cli.eval.tasks.registry import load_task, task_names

_FILES: Final = (
    SAMPLES,
    identity.IDENTITY,
    RUN_FILE,
    ROWS,
    finish.SUMMARY,
    finish.PARTIAL_SUMMARY,
    finish.REPORT,
    "config.yaml",
    "judge_rows.jsonl",
)


@dataclass(frozen=True, slots=True)
class Options:
    """Flags of `deepinfer eval` that are no settings, checked."""

    data: str | None = None
    data_revision: str | None = None
    scorer: str | None = None
    shuffle_seed: int = 0
    template_args: Mapping[str, Any] | None = None
    opinion: OpinionMode = "auto"
    resume: bool = False
    min_score: float | None = None
    judge: str | None = None
    judge_model: str | None = None
    judge_timeout_s: float = 120.0
    reference: str | None = None
    reference_precision: str | None = None
    window: int = 512
    beside: str | None = None


# ---- reading flags -----------------------------------------------------------------------------------------


def integer(flag: str, text: str | None, default: int, minimum: int = 0) -> int:
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < minimum:
        raise UsageError(f"{flag} takes an integer from {minimum}, got {text!r}")
    return int(text)


def seconds(flag: str, text: str | None, default: float) -> float:
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e6:
        raise UsageError(f"{flag} takes a number of seconds, got {text!r}")
    return value


def share(text: str | None) -> float | None:
    """A score from 0 to 1, or one in percent that says so."""
    if text is None:
        return None
    number, is_percent = text.removesuffix("%").strip(), text.endswith("%")
    try:
        value = float(number) / (100 if is_percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise UsageError(f"--min-score takes a share or a percentage, got {text!r}", "0.8 or 80%")
    return value


def opinion_mode(text: str | None) -> OpinionMode:
    if text in (None, "auto"):
        return "auto"
    if text == "on":
        return "on"
    if text == "off":
        return "off"
    raise UsageError(f"--second-opinion is auto, on or off, got {text!r}")


def template_args(texts: Sequence[str]) -> dict[str, Any]:
    """KEY=JSON each; a value that is no JSON is the text itself."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"--template-arg takes KEY=JSON, got {text!r}", "--template-arg thinking=true")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


# ---- verbs -------------------------------------------------------------------------------------------------


def dispatch(words: Sequence[str], config: RunConfig, options: Options, console: Console) -> int:
    if not words:
        raise UsageError("no task given", f"tasks: {', '.join(task_names())}")
    verb, rest = words[0], words[1:]
    if verb == "compare":
        return compare_folders(rest, options, console)
    if verb == "ppl":
        from deepinfer_cli.eval.quality.command import measure

        return measure(rest, config, options, console)
    if rest:
        raise UsageError(f"one task at a time: {verb} or {rest[0]}?", "`deepinfer eval list` lists the tasks")
    if verb == "list":
        return list_tasks(console)
    return evaluate(verb, config, options, console)


def list_tasks(console: Console) -> int:
    for name in task_names():
        task = load_task(name)
        source = "built in" if task.own_data else task.hub.repo if task.hub else "--data FILE"
        gated = ", gated" if task.hub and task.hub.is_gated else ""
        console.print_data(
            f"{name:14} {task.title} ({source}{gated}; {task.num_samples} samples per problem)"
        )
    return EXIT_OK


def evaluate(name: str, config: RunConfig, options: Options, console: Console) -> int:
    """Runs a task; the exit code."""
    from deepinfer_cli.eval.data.load import load_data
    from deepinfer_cli.eval.protocol import plan as plan_protocol

    task = load_task(name)(scorer=options.scorer)
    limit = config.rows.limit
    folder = _folder(config, task.name, is_partial=limit is not None)
    _check_folder(folder, options, overwrite=config.output.overwrite)
    data = load_data(task, options.data, _data_revision(folder, options))
    for warning in data.warnings:
        console.warn(warning)
    problems = data.problems if limit is None else data.problems[:limit]
    if not problems:
        raise UsageError("--limit 0 leaves no problem")
    own, protocol = plan_protocol(
        config, task, shuffle_seed=options.shuffle_seed, template_kwargs=options.template_args or {}
    )
    judge = _judge(own, options, console, folder)
    folder.mkdir(parents=True, exist_ok=True)
    described = None if judge is None else judge.describe()
    plan = EvalPlan(task, data, problems, protocol, own, folder, limit, described)
    try:
        code = ask(plan, console)
    except BaseException:
        with suppress(OSError):  # a folder that holds nothing yet, because the model could not be loaded
            folder.rmdir()
        raise
    if code not in (EXIT_OK, EXIT_ROWS_FAILED):
        console.info(f"samples so far are in {folder}; `--resume` goes on from there")
        return code
    summary = Finish(folder, console, options.opinion, judge).run(task)
    return _conclude(summary, folder, options, console)


def rescore(folder: Path, options: Options, console: Console) -> int:
    judge = None
    if options.judge is not None:
        if options.judge == "local":
            raise UsageError("--rescore loads no model, so the judge cannot be local", "--judge URL")
        judge = _endpoint(options)
    summary, num_changed = Finish(folder, console, options.opinion, judge).rescore()
    console.info(f"{num_changed:,} of {summary['num_samples']:,} verdicts changed")
    return _conclude(summary, folder, options, console)


def compare_folders(folders: Sequence[str], options: Options, console: Console) -> int:
    from deepinfer_cli.eval.compare import compare, comparison_lines

    if len(folders) != 2:
        raise UsageError("compare takes two folders", "deepinfer eval compare A B")
    result = compare(Path(folders[0]), Path(folders[1]))
    console.print_data("\n".join(comparison_lines(result)))
    return EXIT_OK


# ---- parts -------------------------------------------------------------------------------------------------


def _conclude(summary: Mapping[str, Any], folder: Path, options: Options, console: Console) -> int:
    """Says the result and decides the exit code: a missed score wins over failures, and both are named."""
    for line in table(summary, load_task(summary["task"]).published):
        console.info(line)
    console.info(f"read the samples: {folder / finish.REPORT}")
    console.print_data(str(folder))
    code = EXIT_OK
    failed = summary["verdicts"]["error"] + ((summary["judge"] or {}).get("num_failed") or 0)
    if failed:
        console.warn(f"{failed:,} samples or judgements failed (exit code 3); --resume tries them again")
        code = EXIT_ROWS_FAILED
    if options.min_score is not None and (summary["score"] is None or summary["score"] < options.min_score):
        found = percent(summary["score"])
        console.warn(f"score {found} % is below --min-score {percent(options.min_score)} % (exit code 4)")
        code = EXIT_SCORE_MISSED
    return code


def _folder(config: RunConfig, task: str, *, is_partial: bool) -> Path:
    if config.output.output == "-":
        raise UsageError("eval writes a folder, not a stream", "-o DIR")
    if config.output.output is not None:
        return Path(config.output.output)
    model = Path((config.model.model or "small-model").rstrip("/")).name
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", model.removesuffix(".gguf")).strip("-.") or "model"
    return Path(f"eval-{task}-{slug}{'-partial' if is_partial else ''}")


def _check_folder(folder: Path, options: Options, *, overwrite: bool) -> None:
    """Refuses to mix or lose results; empties the folder when asked to."""
    if options.resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", "-o DIR")
    if options.resume:
        identity.read_identity(folder)
        return
    found = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    if not found:
        return
    if identity.IDENTITY not in found:
        found = [name for name in found if name not in (ROWS, RUN_FILE)]  # killed before the first question
        if not found:
            return
        raise UsageError(f"{folder} holds other files, {found[0]} for one", "-o another folder")
    if not overwrite:
        raise UsageError(
            f"{folder} holds an evaluation already", "--resume goes on with it, --overwrite replaces it"
        )
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)


def _data_revision(folder: Path, options: Options) -> str | None:
    """A resumed evaluation reads the commit it began with, whatever the branch points to by now."""
    if not options.resume or options.data is not None:
        return options.data_revision
    began = (identity.read_identity(folder).get("data") or {}).get("commit")
    if began and options.data_revision not in (None, began):
        raise ConfigError(
            f"--resume: this evaluation began with data at {began}, not {options.data_revision}"
        )
    return began or options.data_revision


def _endpoint(options: Options) -> Judge:
    from deepinfer_cli.eval.judge.endpoint import EndpointJudge

    if not options.judge_model:
        raise UsageError("--judge URL needs --judge-model", "--judge-model NAME, as the endpoint knows it")
    return EndpointJudge(str(options.judge), options.judge_model, options.judge_timeout_s)


def _judge(config: RunConfig, options: Options, console: Console, folder: Path) -> Judge | None:
    if options.judge is None:
        return None
    if options.judge != "local":
        return _endpoint(options)
    from deepinfer_cli.eval.judge.local import LocalJudge

    return LocalJudge(config, console, folder, options.judge_model or config.model.model or "the small model")
