"""The files of one attempt: new ones, or those of earlier attempts that it goes on with.

An attempt runs in stages, each with a reader, a parser and a writer of its own. A new run has one stage. A
resumed run first runs what has to run again, merges it, and then appends what the output does not reach yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.engine import prepare
from deepinfer_cli.engine.counters import Counters
from deepinfer_cli.engine.redo import Recorder, Spool
from deepinfer_cli.engine.resume import Comparer, Comparison
from deepinfer_cli.errors import InputError
from deepinfer_cli.requests.parser import RowParser
from deepinfer_cli.requests.reader import RowReader
from deepinfer_cli.requests.scan import IdTable
from deepinfer_cli.requests.sources import Source
from deepinfer_cli.requests.types import RowRules
from deepinfer_cli.results import manifest as run_files
from deepinfer_cli.results.durable import rename_over
from deepinfer_cli.results.lock import Held
from deepinfer_cli.results.ordered import OrderedOutputs, OutputPaths, merge
from deepinfer_cli.results.output_file import STDOUT, OutputFile
from deepinfer_cli.results.sink import LineOutput, RowSink
from deepinfer_cli.results.stored import StoredRows, beside, has_content, remove
from deepinfer_cli.results.unordered import DoneTable, compact
from deepinfer_cli.results.writer import RowWriter


@dataclass(frozen=True, slots=True)
class Stage:
    """One pass of the loop."""

    reader: Any  # RowReader or Spool
    parser: RowParser
    writer: RowWriter
    output: LineOutput
    errors: LineOutput | None = None

    @property
    def files(self) -> tuple[LineOutput, ...]:
        return (self.output,) if self.errors is None else (self.output, self.errors)


class Outputs(Protocol):
    """What an attempt writes, and how far earlier attempts came."""

    num_rows_before: int

    def stages(self) -> Iterator[Stage]:
        """The caller runs each stage's loop before it asks for the next; once interrupted it asks no more."""
        ...


@dataclass(slots=True)
class NewOutputs:
    """Everything from the first row on."""

    config: RunConfig
    console: Console
    sink: RowSink | None
    reader: RowReader
    parser: RowParser
    num_rows_before: int = 0

    def stages(self) -> Iterator[Stage]:
        output, errors = self._open()
        writer = RowWriter(output, errors, keep_order=self.config.output.order == "input")
        yield Stage(self.reader, self.parser, writer, output, errors)

    def _open(self) -> tuple[LineOutput, LineOutput | None]:
        if self.sink is not None:
            return self.sink, None
        out = self.config.output
        output: OutputFile
        if out.output in (None, STDOUT):
            output = OutputFile(self.console.data.fileno(), "standard output", owns_fd=False)
        else:
            path = str(out.output)
            if Path(path).is_file() or not Path(path).exists():
                remove(output_paths(self.config).again)
            output = OutputFile.create(path, sync_seconds=out.fsync)
        errors = None if out.errors is None else OutputFile.create(out.errors, sync_seconds=out.fsync)
        return output, errors


@dataclass(slots=True)
class ResumedOutputs:
    """`--resume` on outputs that are not empty."""

    config: RunConfig
    console: Console
    rules: RowRules
    paths: OutputPaths
    settings: str
    reader: RowReader
    parser: RowParser
    tables: tuple[Recorder, Recorder]
    spool: Spool
    held: Held  # the output's lock
    num_rows_before: int = 0
    old_lines: Mapping[str, int] = field(default_factory=dict)  # rows of each file before this attempt
    found: Comparison | None = None

    @classmethod
    def of(
        cls,
        config: RunConfig,
        console: Console,
        rules: RowRules,
        settings: str,
        reader: RowReader,
        parser: RowParser,
        tables: tuple[Recorder, Recorder],
    ) -> ResumedOutputs:
        paths = output_paths(config)
        spool = Spool(str(Path(paths.output).parent))
        held = Held(paths.output)
        return cls(config, console, rules, paths, settings, reader, parser, tables, spool, held)

    def compare(self, counters: Counters, keep_going: Callable[[], bool]) -> None:
        """Refuses what does not fit; nothing has been touched then."""
        comparer = Comparer(
            reader=self.reader,
            parser=self.parser,
            tables=self.tables,
            spool=self.spool,
            counters=counters,
            settings=self.settings,
            file_names=self.rules.file_names,
            force=self.config.force,
            keep_going=keep_going,
        )
        compare = self._compare_ordered if self.in_order else self._compare_unordered
        compare(comparer, keep_going)
        if self.found is None:
            return
        self.spool.rewind()
        self._say(self.found)

    @property
    def in_order(self) -> bool:
        return self.config.output.order == "input"

    def _compare_ordered(self, comparer: Comparer, keep_going: Callable[[], bool]) -> None:
        with OrderedOutputs(self.paths, self.settings) as outputs:
            found = comparer.ordered(outputs)
            if not keep_going():
                return
            while (index := outputs.next_index) is not None:  # what --force drops
                outputs.take(index)
            files = list(outputs.files.values())
            needs_merge = outputs.needs_merge or found.end_index is not None
        self._accept(found, files, needs_merge)

    def _compare_unordered(self, comparer: Comparer, keep_going: Callable[[], bool]) -> None:
        table = DoneTable(self.paths, self.settings, self.rules.shard)
        with ExitStack() as cleanup:
            cleanup.callback(table.close)
            files = [cleanup.enter_context(StoredRows(path)) for path in self.paths.results]
            table.scan(files)
            found = comparer.unordered(table)
        if keep_going():
            self._accept(found, files, table.needs_rewrite or found.end_index is not None)

    def _accept(self, found: Comparison, files: Sequence[StoredRows], needs_merge: bool) -> None:
        """Everything fits: from here on files are touched."""
        self.found = found
        self.num_rows_before = sum(f.rows.num_records for f in files if f.path in self.paths.results)
        for file in files:
            what = file.mend()
            if what:
                self.console.info(f"{file.path}: {what}")
        remove(*(beside(path, "merged") for path in self.paths.results))  # of a merge that was cut short
        self.old_lines = {file.path: file.rows.num_records for file in files}
        if needs_merge:
            self._merge({})
        else:
            remove(self.paths.again)  # nothing in it counts

    @property
    def has_work(self) -> bool:
        return self.found is None or self.found.has_more or self.spool.num_left > 0

    def stages(self) -> Iterator[Stage]:
        assert self.found is not None
        found, fsync = self.found, self.config.output.fsync
        if self.spool.num_left and self.in_order:
            parser = self._spool_parser()
            again = OutputFile.create(self.paths.again, sync_seconds=fsync)
            yield Stage(self.spool, parser, RowWriter(again, None, keep_order=True), again)
            self._merge({})
        elif self.spool.num_left:
            yield self._append(self.spool, self._spool_parser())
        if found.has_more:
            yield self._append(self.reader, self.parser)
        if not self.in_order and found.num_retried + found.num_forced:
            self._merge(self.old_lines)

    def _spool_parser(self) -> RowParser:
        tables = (self.spool, self.spool)
        return prepare.make_parser(self.config, self.rules, self.console.once, tables)

    def _append(self, reader: Any, parser: RowParser) -> Stage:
        fsync = self.config.output.fsync
        files = [
            OutputFile.create(path, append=True, sync_seconds=fsync, is_locked=False)
            for path in self.paths.results
        ]
        errors = files[1] if len(files) > 1 else None
        return Stage(reader, parser, RowWriter(files[0], errors, keep_order=self.in_order), files[0], errors)

    def _merge(self, old_lines: Mapping[str, int]) -> None:
        """`old_lines`: without order, the rows of each file before this attempt."""
        assert self.found is not None
        end_index = self.found.end_index
        if self.in_order:
            merge(self.paths, self.settings, end_index=end_index)
        else:
            shard = self.rules.shard
            self.old_lines = compact(
                self.paths, self.settings, shard, old_lines=old_lines, end_index=end_index
            )
        self.held.renew()

    def _say(self, found: Comparison) -> None:
        parts = [f"{found.num_kept:,} rows are there already"]
        for count, what in (
            (found.num_retried, "failed and are tried again"),
            (found.num_forced, "changed and run again"),
            (found.num_missing, "missing in between"),
        ):
            if count:
                parts.append(f"{count:,} {what}")
        if not self.has_work:
            parts.append("nothing is left to do")
        self.console.info("--resume: " + ", ".join(parts))


# ---- which of them -----------------------------------------------------------------------------------------


def output_paths(config: RunConfig) -> OutputPaths:
    output, errors = (_real(path) for path in (config.output.output, config.output.errors))
    return OutputPaths(str(output), errors)


def _real(path: str | None) -> str | None:
    """Where a link leads: files are written beside the real one and renamed over it."""
    return path if path is None or not Path(path).is_symlink() else str(Path(path).resolve())


def staged(config: RunConfig) -> RunConfig:
    """The same run with its files beside the real ones: `--force` after changed settings writes there until
    all is done."""
    paths = output_paths(config)
    values: dict[str, Any] = {"output": beside(paths.output, "forced")}
    if paths.errors is not None:
        values["errors"] = beside(paths.errors, "forced")
    run_file = prepare.run_file_path(config)
    values["run_file"] = None if run_file is None else beside(run_file, "forced")
    return config.with_values(values, config.origin("output"))


def commit_staged(config: RunConfig, stage: RunConfig) -> None:
    """Staged files take the places of the real ones; the output comes late, as its rows decide on staging."""
    paths, new = output_paths(config), output_paths(stage)
    for target, beside_it in ((paths.errors, new.errors), (paths.output, new.output)):
        if target is not None and beside_it is not None and Path(beside_it).exists():
            rename_over(beside_it, target)
    run_file = prepare.run_file_path(config)
    if run_file is not None and Path(str(stage.output.run_file)).exists():
        rename_over(str(stage.output.run_file), run_file)


def settings_of_rows(paths: OutputPaths) -> str | None:
    """Settings id of the first row that is there."""
    for path in paths.results:
        with StoredRows(path) as stored:
            if stored.rows.head is not None:
                return stored.rows.head.settings
    return None


def is_resumable(config: RunConfig) -> bool:
    """Whether there is anything to go on with."""
    return has_content(config.output.output) or has_content(config.output.errors)


def refuse_other_settings(config: RunConfig, manifest: dict[str, Any], written: str) -> None:
    """Says what makes the rows' settings differ from this run's."""
    path = config.output.output
    before = run_files.earlier_run(prepare.run_file_path(config))
    if before.get("settings_id") == written:
        found = "; ".join(run_files.changes(before, manifest))
        what = f"something else was set or loaded: {found}" if found else "settings, model or numerics differ"
    else:
        what = "settings, model or numerics differ (the run file that could say which is not there)"
    raise InputError(
        f"--resume: {path} was written by a run in which {what}; the file is left as it is",
        "use what it was written with; `--resume --force` runs all rows again",
    )


def say_other_build(console: Console, earlier: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    """Builds of one numerics version may share an output; who looks for a difference will want to know."""
    numerics, now = earlier.get("numerics"), manifest["numerics"]["build"]
    before = numerics.get("build") if isinstance(numerics, dict) else None
    if isinstance(before, dict) and before != now:
        version = manifest["numerics"]["version"]
        shown = f"{before.get('version')} ({before.get('commit')}) -> {now['version']} ({now['commit']})"
        console.info(f"--resume: another build goes on, of the same numerics version {version}: {shown}")


def new_tables() -> tuple[Recorder, Recorder]:
    return Recorder(IdTable()), Recorder(IdTable())


def make_reader(config: RunConfig, sources: list[Source] | Any, console: Console) -> RowReader:
    return RowReader(
        sources,
        max_row_bytes=config.rows.max_row_bytes,
        limit=config.rows.limit,
        on_damage=console.warn,
    )
