"""What `deepinfer bench` can do, one function each: measure, compare, plot, kernels."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deepinfer_cli.bench import folder as folders
from deepinfer_cli.bench import header as headers
from deepinfer_cli.bench.against import LivePeer, check_peer, peer_model
from deepinfer_cli.bench.asks import AskSource, RowAsks, SyntheticAsks, read_rows, rows_digest
from deepinfer_cli.bench.record import CellResult, Journal, as_document, read_journal, restore
from deepinfer_cli.bench.session import BUDGET_S, Effort, Session
from deepinfer_cli.bench.spec import BUILT_IN, SYNTHETIC_KEYS, Cell, Slo, Sweep, load_settings
from deepinfer_cli.bench.sweep_file import MAX_BUDGET_S, read_sweep, unknown_key
from deepinfer_cli.bench.tables import (
    FORMATS,
    fitting_fields,
    markdown_table,
    rendered,
    short_table,
    summary_lines,
    terminal_table,
)
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.values import redact
from deepinfer_cli.console import Console
from deepinfer_cli.engine.batch_run import load_model
from deepinfer_cli.engine.signals import StopRequest
from deepinfer_cli.errors import EXIT_OK, EXIT_ROWS_FAILED, ConfigError, InputError, UsageError
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.results.durable import replace_text

VERBS: Final = ("compare", "plot", "kernels")
_PLAIN_WIDTH: Final = 100
_UNBOUNDED: Final = 10_000  # columns of a table that goes into a file


@dataclass(frozen=True, slots=True)
class Options:
    """Flags of `deepinfer bench` that are no settings, checked."""

    words: Sequence[str] = ()
    sweep: bool = False
    rows: str | None = None  # --from
    load: Mapping[str, Any] = field(default_factory=dict)  # keys of the load that flags set
    slo: Slo | None = None
    price_per_hour: float | None = None
    budget_s: float | None = None
    form: str | None = None
    save: str | None = None
    resume: bool = False
    overwrite: bool = False
    dry_run: bool = False
    force: bool = False
    against: str | None = None
    peer_model: str | None = None


# ---- reading flags -----------------------------------------------------------------------------------------


def duration(text: str | None) -> float | None:
    """Seconds of "90", "90s", "8m" or "1.5h"."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)
    value = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not 0 < value <= MAX_BUDGET_S:
        raise UsageError(f"--budget takes a time such as 90s or 8m, got {text!r}")
    return value


def slo_of(texts: Sequence[str]) -> Slo | None:
    """`ttft=500,tpot=50`, in milliseconds."""
    limits: dict[str, float] = {}
    for part in (p.strip() for text in texts for p in text.split(",")):
        name, equals, value = part.partition("=")
        key = name if name.endswith("_ms") else f"{name}_ms"
        if not equals or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
            raise UsageError(f"--slo takes LIMIT=MILLISECONDS, got {part!r}", "--slo ttft=500,tpot=50")
        if key not in Slo.__dataclass_fields__:
            raise UsageError(*unknown_key("limit", name, ("ttft", "tpot", "e2e")))
        limits[key] = float(value)
    return Slo(**limits) if limits else None


def price(text: str | None) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise UsageError(f"--price-per-hour takes a number, got {text!r}")
    return float(text)


def form_of(text: str | None, words: Sequence[str]) -> str | None:
    """A form that there is; pictures only for `plot`."""
    known = ("svg", "png") if list(words[:1]) == ["plot"] else FORMATS
    if text is not None and text not in known:
        raise UsageError(f"--format is {', '.join(known)}; got {text!r}")
    return text


# ---- verbs -------------------------------------------------------------------------------------------------


def dispatch(config: RunConfig, options: Options, console: Console) -> int:
    words = options.words
    if words and words[0] in VERBS and not options.sweep:
        return _VERBS[words[0]](config, options, console)
    if words and not options.sweep:
        hint = f"deepinfer bench --sweep {words[0]}" if words[0].endswith((".yaml", ".yml")) else None
        raise UsageError(f"{words[0]!r} is no verb of bench", hint or f"verbs: {', '.join(VERBS)}")
    if len(words) > 1:
        raise UsageError(f"one sweep file at a time: {words[0]} or {words[1]}?")
    return measure(config, options, console)


def compare(config: RunConfig, options: Options, console: Console) -> int:
    """Two saved runs side by side; reads files only."""
    from deepinfer_cli.bench import difference, saved

    if len(options.words) != 3:
        raise UsageError("compare takes two saved runs", "deepinfer bench compare A B")
    found = saved.compared(Path(options.words[1]), Path(options.words[2]), force=options.force)
    for objection in found.objections:
        console.warn(f"compared by force: {objection}")
    for side, names in (("first", found.only_first), ("second", found.only_second)):
        if names:
            console.warn(f"{len(names)} cells are in the {side} run only: {'; '.join(names[:3])}")
    if options.form == "json":
        console.print_data(saved.comparison_json(found))
        return EXIT_OK
    if options.form in ("csv", "jsonl"):
        raise UsageError(f"compare has no form {options.form}", "--format table, md or json")
    _show_table(console, options, list(difference.HEAD), difference.rows_of(found))
    console.info(
        "ratio = second / first; the interval includes the drift of the machine between runs; "
        "`would show`: the difference that is found 19 times of 20"
    )
    return EXIT_OK


def plot(config: RunConfig, options: Options, console: Console) -> int:
    """A saved run as a picture: on the terminal, or with --format svg or png as files."""
    from deepinfer_cli.bench import saved, text_plot
    from deepinfer_cli.bench.record import read_document

    if len(options.words) != 2:
        raise UsageError("plot takes one saved run", "deepinfer bench plot RUN --format svg")
    path = Path(options.words[1])
    document = read_document(path)
    if options.form in ("svg", "png"):
        folder = Path(options.save) if options.save else path if path.is_dir() else path.parent
        for written in saved.write_plots(document, folder, options.form):
            console.print_data(str(written))
        return EXIT_OK
    scatter, bars = saved.figures_of(document)
    width = shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns
    if scatter is not None:
        console.print_data(text_plot.scatter_text(scatter, width))
    if bars is not None:
        console.print_data("\n" + text_plot.bars_text(bars, width))
    if scatter is None and bars is None:
        raise InputError("no cell of this run was measured, so there is nothing to draw")
    return EXIT_OK


def kernels(config: RunConfig, options: Options, console: Console) -> int:
    from deepinfer_cli.bench import kernels as bench

    if len(options.words) > 1:
        raise UsageError("kernels takes no arguments", "deepinfer bench kernels -m MODEL")
    if options.form in ("csv", "jsonl"):
        raise UsageError(f"kernels has no form {options.form}", "--format table, md or json")
    model = load_model(config, console)
    results, limits, about = bench.bench_kernels(
        config, model, lambda result: console.debug(f"{result.kernel} {result.shape}, {result.rows} rows")
    )
    if options.form == "json":
        console.print_data(bench.as_json(results, limits, about))
        return EXIT_OK
    console.info(about)
    console.info(bench.limits_line(limits))
    rows = [list(bench.row_of(result, limits)) for result in results]
    _show_table(console, options, list(bench.HEAD), rows)
    return EXIT_OK


def measure(config: RunConfig, options: Options, console: Console) -> int:
    """Measures a point or a sweep; the exit code."""
    if config.engine.accelerator != "cpu":
        raise ConfigError(
            f"accelerator {config.engine.accelerator} cannot be measured: this build computes on the CPU",
            f"it was set by {config.origin('accelerator')}; --accelerator cpu overrides that",
        )
    sweep = _sweep(options)
    if options.against is not None:
        check_peer(options.against)
    folder = _folder(config, options)
    if folder is not None and not options.dry_run:
        folders.check_folder(folder, resume=options.resume, overwrite=options.overwrite)
    model = load_model(config, console)
    config = config.with_model_defaults(model.generation_defaults)
    asks, sweep, rows = _asks(config, options, sweep, model, console)
    cells = _cells(config, sweep, rows)
    if options.dry_run:
        return _dry_run(cells, sweep, model, console)
    build = headers.build_identity()
    head = headers.new_header(config, model, sweep, cells, build, _command())
    with ExitStack() as cleanup:
        peer = _peer(config, options, cells, model, cleanup)
        described = None if peer is None else f"{peer.name}: {peer.description}"
        head["against"] = described
        identity = headers.identity(model, build, sweep, described)
        run = _Run(config, options, console, sweep, asks, folder, head, peer)
        return run.run([CellResult(cell, cell.key(identity)) for cell in cells])


def _peer(
    config: RunConfig, options: Options, cells: Sequence[Cell], model: LoadedModel, cleanup: ExitStack
) -> LivePeer | None:
    """The engine to measure beside ours, loaded; None when nobody asked for one."""
    if options.against is None:
        return None
    if options.rows is not None:
        raise UsageError("--against needs prompts that are made; rows of --from end where they like")
    if len({cell.engine.threads for cell in cells}) > 1:
        raise UsageError("--against gives the peer one number of threads", "leave threads out of the sweep")
    from deepinfer_cli.engine.native import num_threads

    files = getattr(getattr(model, "file", None), "files", ())
    file = Path(files[0]) if files else None
    named = peer_model(options.against, options.peer_model, file)
    return cleanup.enter_context(LivePeer(options.against, named, num_threads(cells[0].engine.threads)))


def _form(console: Console, options: Options) -> str:
    return options.form or ("table" if os.isatty(console.data.fileno()) else "md")


def _show_table(
    console: Console,
    options: Options,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    styles: Sequence[str] = (),
) -> None:
    """A table on stdout: drawn, or as Markdown where that is asked for or nobody watches."""
    if _form(console, options) != "table":
        console.print_data(markdown_table(head, rows))
        return
    color = os.isatty(console.data.fileno()) and console.has_color
    console.print_data(terminal_table(head, rows, _width(console), styles=styles, color=color))


def _width(console: Console) -> int:
    """Columns that a table on stdout may have."""
    is_terminal = os.isatty(console.data.fileno())
    return shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns if is_terminal else _UNBOUNDED


def _command() -> str:
    return redact(shlex.join(["deepinfer", *sys.argv[1:]]))


def _sweep(options: Options) -> Sweep:
    """The sweep asked for: file, built-in or one point, with the flags on top."""
    sweep = Sweep()
    if options.sweep:
        sweep = read_sweep(options.words[0]) if options.words else BUILT_IN
    for key in options.load:
        if key in sweep.sweep:
            flag = load_settings()[key].flags[0]
            raise UsageError(f"{flag}: the sweep varies {key}", f"leave {flag} or the key out")
    sweep = dataclasses.replace(sweep, fixed={**sweep.fixed, **options.load})
    given: dict[str, Any] = {
        "slo": options.slo,
        "price_per_hour": options.price_per_hour,
        "budget_s": options.budget_s,
    }
    return dataclasses.replace(sweep, **{key: value for key, value in given.items() if value is not None})


def _folder(config: RunConfig, options: Options) -> Path | None:
    if options.save is not None:
        return Path(options.save)
    if options.sweep:
        return folders.default_folder(config.model.model)
    if options.resume or options.overwrite:
        flag = "--resume" if options.resume else "--overwrite"
        raise UsageError(f"{flag} needs a folder", "--save DIR")
    return None


def _asks(
    config: RunConfig, options: Options, sweep: Sweep, model: LoadedModel, console: Console
) -> tuple[AskSource, Sweep, str | None]:
    """Who makes the requests, the sweep as that allows it, and what identifies the user's rows."""
    if options.rows is None:
        # A server may remember the prompts of an earlier run; the engine here starts empty.
        salt = uuid.uuid4().hex if (options.against or "").startswith("http") else ""
        return SyntheticAsks(model.tokenizer, salt), sweep, None
    from deepinfer_cli.engine.native import context_limit

    for key in SYNTHETIC_KEYS:
        if key in sweep.sweep or key in sweep.fixed:
            raise UsageError(f"{key} belongs to prompts that are made; rows of --from say it themselves")
    context = context_limit(model, config.engine.max_model_len)
    rows = read_rows(config, options.rows, model, context, console)
    if "num_prompts" in sweep.sweep:
        raise UsageError("num_prompts cannot be swept with --from", "put it into `fixed:`")
    count = min(sweep.fixed.get("num_prompts") or len(rows), len(rows))
    sweep = dataclasses.replace(sweep, fixed={**sweep.fixed, "num_prompts": count})
    return RowAsks(rows), sweep, rows_digest(options.rows)


def _cells(config: RunConfig, sweep: Sweep, rows: str | None) -> list[Cell]:
    """All cells. Unless somebody chose max_num_seqs, every cell gets the same, enough for the widest one."""
    cells = sweep.cells(config.engine, rows)
    chosen = "max_num_seqs" in {**sweep.sweep, **sweep.fixed} or not config.is_default("max_num_seqs")
    if chosen:
        return cells
    widest = max(cell.load.concurrency for cell in cells)
    seqs = max(widest, config.engine.max_num_seqs)
    return [
        dataclasses.replace(cell, engine=dataclasses.replace(cell.engine, max_num_seqs=seqs))
        for cell in cells
    ]


def _dry_run(cells: Sequence[Cell], sweep: Sweep, model: LoadedModel, console: Console) -> int:
    from deepinfer_cli.bench.estimate import estimate_lines

    console.print_data("\n".join(estimate_lines(cells, sweep, model)))
    return EXIT_OK


@dataclass(slots=True)
class _Run:
    """One run of a sweep, from the first repetition to the exit code."""

    config: RunConfig
    options: Options
    console: Console
    sweep: Sweep
    asks: AskSource
    folder: Path | None
    header: Mapping[str, Any]
    peer: LivePeer | None

    def run(self, results: list[CellResult]) -> int:
        console = self.console
        if self.options.resume and self.folder is not None:
            self._restore(results)
        effort = self._effort()
        with ExitStack() as cleanup:
            journal = Journal(self.folder)
            cleanup.callback(journal.close)
            journal.append("run", header=self.header)
            if self.folder is not None:
                self._write_config()
            stop = cleanup.enter_context(StopRequest())
            progress = cleanup.enter_context(console.progress(unit="repetitions"))
            session = Session(
                config=self.config,
                model_of=lambda config: load_model(config, console),
                results=results,
                asks=self.asks,
                slo=self.sweep.slo,
                price_per_hour=self.sweep.price_per_hour,
                effort=effort,
                journal=journal,
                progress=progress,
                is_stopped=lambda: stop.requested,
                peer=self.peer,
            )
            self._say_start(results, effort)
            with stop.rows():
                session.run()
        return self._conclude(results, session, stop)

    def _effort(self) -> Effort:
        """A fixed number of repetitions is measured however long it takes, unless there is a budget too."""
        repetitions = self.sweep.fixed.get("repetitions")
        default = BUDGET_S if repetitions is None else None
        return Effort(repetitions, self.sweep.budget_s or default)

    def _restore(self, results: list[CellResult]) -> None:
        assert self.folder is not None
        strangers = restore(results, read_journal(self.folder))
        there = sum(len(r.repetitions) for r in results)
        self.console.info(f"{there:,} repetitions are there already")
        if strangers:
            self.console.warn(
                f"{strangers:,} repetitions in {self.folder} are not used: they have another load, build, "
                "model or machine"
            )

    def _write_config(self) -> None:
        from deepinfer_cli.config.layers import print_config

        assert self.folder is not None
        text = f"# {self.header['command']}\n{print_config(self.config)}\n"
        replace_text(self.folder / folders.CONFIG, text)

    def _say_start(self, results: Sequence[CellResult], effort: Effort) -> None:
        times = f"{effort.repetitions} repetitions" if effort.repetitions else "5 to 15 repetitions"
        limit = f", at most {effort.budget_s / 60:.0f} min" if effort.budget_s else ""
        self.console.info(f"{len(results):,} cells, {times} each{limit}; SLO: {self.sweep.slo}")

    def _conclude(self, results: Sequence[CellResult], session: Session, stop: StopRequest) -> int:
        cells = [result.as_json() for result in results]
        header = headers.finished(self.header, cells, session.facts, session.order)
        document = {**as_document(header, results), "cells": cells}
        if self.folder is not None:
            from deepinfer_cli.bench.saved import report_html

            folders.write_views(self.folder, document)
            replace_text(self.folder / folders.REPORT, report_html(document))
        self._show(document)
        return self._verdict(results, session, stop)

    def _show(self, document: Mapping[str, Any]) -> None:
        console, form = self.console, _form(self.console, self.options)
        if form != "table":
            console.print_data(rendered(document, form).rstrip("\n"))
            return
        for line in summary_lines(document):
            console.info(line)
        fields, left_out = fitting_fields(document, _width(console))
        if left_out:
            names = ", ".join(f.title for f in left_out)
            console.info(f"left out for want of room: {names}; a wider terminal or --format md shows them")
        head, rows = short_table(document, fields)
        styles = [{"failed": "red", "skipped": "yellow"}.get(c["status"], "") for c in document["cells"]]
        _show_table(console, self.options, head, rows, styles)

    def _verdict(self, results: Sequence[CellResult], session: Session, stop: StopRequest) -> int:
        console, again = self.console, "" if self.folder is None else f"; results are in {self.folder}"
        failed = sum(r.status == "failed" for r in results)
        skipped = sum(r.status == "skipped" for r in results)
        if stop.requested:
            resume = ", --resume goes on" if self.folder is not None else ""
            console.warn(f"interrupted{again}{resume}")
            return stop.exit_code
        if session.is_out_of_time:
            console.warn(
                "the time budget ended before every cell was certain", "--budget 20m, or fewer cells"
            )
        if failed or skipped:
            console.warn(f"{failed:,} cells failed, {skipped:,} were not measured (exit code 3){again}")
            return EXIT_ROWS_FAILED
        console.info(f"{len(results):,} cells measured{again}")
        return EXIT_OK


_VERBS: Final[Mapping[str, Callable[[RunConfig, Options, Console], int]]] = {
    "compare": compare,
    "plot": plot,
    "kernels": kernels,
}
