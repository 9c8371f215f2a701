"""`deepinfer run`: checks, then the model, then the loop, then the summary and the exit code."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepinfer_cli import __version__
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.engine import check_rows, outputs, prepare
from deepinfer_cli.engine.constraints import ConstraintCounts, ConstraintStage
from deepinfer_cli.engine.counters import Counters, summary
from deepinfer_cli.engine.memory import bounded_rows, open_bytes
from deepinfer_cli.engine.signals import StopRequest
from deepinfer_cli.engine.watchdog import Watchdog
from deepinfer_cli.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_FATAL,
    EXIT_OK,
    EXIT_ROWS_FAILED,
    InternalError,
    OutputError,
)
from deepinfer_cli.models.fake import is_fake, load_fake
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.requests.reader import RowReader
from deepinfer_cli.requests.sources import Source, expand
from deepinfer_cli.requests.types import RowRules
from deepinfer_cli.results.manifest import (
    SCHEMA_VERSION,
    RunFile,
    close_killed,
    constraint_digest,
    earlier_attempts,
    earlier_run,
    file_digest,
    settings_id,
)
from deepinfer_cli.results.output_file import STDOUT, STDOUT_NAMES, OutputFile
from deepinfer_cli.results.sink import RowSink
from deepinfer_cli.results.types import RowStyle

if TYPE_CHECKING:
    from deepinfer_cli.engine.loop import BatchLoop


def run(config: RunConfig, console: Console, sink: RowSink | None = None) -> int:
    """The exit code; raises DeepInferError for what is fatal or refused. With a `sink`, rows go there."""
    with ExitStack() as cleanup:
        stop = cleanup.enter_context(StopRequest())
        config = bounded_rows(config)
        if config.output.output in STDOUT_NAMES:
            config = config.with_values({"output": STDOUT}, config.origin("output"))
        sources = expand(config.inputs)
        stdout_fd = console.data.fileno() if sink is None and _uses_stdout(config) else None
        if config.action == "run" and sink is None:
            prepare.check_outputs(config, sources, stdout_fd)
        rules = prepare.row_rules(config, sources, None)
        prepare.check_run_constraint(config, rules)
        if config.action == "validate":
            check = check_rows.RowCheck(config, sources, rules, console)
            return _judge(check, console, stop, None, None, 0)
        if config.rows.strict:
            sources = cleanup.enter_context(check_rows.rereadable(sources))
            check_rows.refuse_bad_rows(check_rows.RowCheck(config, sources, rules, console))
        model = load_model(config, console)
        config = config.with_model_defaults(model.generation_defaults)
        rules = prepare.row_rules(config, sources, model)
        from deepinfer_cli.engine.native import context_limit

        context = context_limit(model, config.engine.max_model_len)
        prompts = prepare.PromptStage(
            model,
            context=context,
            policy=config.rows.truncate_prompt,
            once=console.once,
            max_tokens_cap=config.sampling.max_tokens_cap,
        )
        if config.action == "dry_run":
            console.info(f"model {model.name}; context {context:,}; nothing is run")
            console.info(_sampling_line(config))
            check = check_rows.RowCheck(config, sources, rules, console, model)
            return _judge(check, console, stop, prompts, model, context)
        return _Run(config, console, sources, rules, model, prompts, context, stop, sink).run()


def _sampling_line(config: RunConfig) -> str:
    """What holds for a row that says nothing: the two values that surprise people most, and the seed."""
    s = config.sampling
    if s.max_tokens is None:
        limit = f"to the end of the context, at most {s.max_tokens_cap:,}"
    else:
        limit = f"{s.max_tokens:,}"
    return (
        f"unless a row says otherwise: temperature {s.temperature:g}, max_tokens {limit}, run seed {s.seed}"
    )


def _uses_stdout(config: RunConfig) -> bool:
    return config.action != "run" or config.output.output in (None, STDOUT)


def load_model(config: RunConfig, console: Console) -> LoadedModel:
    """The model that the settings name, the built-in fake one included."""
    name = config.model.model
    if name is not None and is_fake(name):
        return load_fake(name)
    from deepinfer_cli.models import load

    return load(config, console.info)


def _judge(
    check: check_rows.RowCheck,
    console: Console,
    stop: StopRequest,
    prompts: prepare.PromptStage | None,
    model: LoadedModel | None,
    context: int,
) -> int:
    output = OutputFile(console.data.fileno(), "standard output", owns_fd=False)
    with stop.rows():
        check.run(output, prompts, model, is_stopped=lambda: stop.requested)
        output.flush()
        code = check_rows.report(check, console, model=model, context=context)
        return stop.exit_code if stop.requested else code


def _last_change(path: str | None) -> float | None:
    try:
        return None if path is None else Path(path).stat().st_mtime
    except OSError:
        return None


@contextmanager
def _saving_rows(stage: outputs.Stage) -> Iterator[None]:
    """After a failure: puts the rows before it on the disk. The failure is what is told."""
    try:
        yield
    except BaseException:
        for file in stage.files:
            with suppress(OSError, OutputError):
                file.close()
        raise


@dataclass(slots=True)
class _Run:
    """One run with a loaded model, from the first read to the exit code."""

    config: RunConfig
    console: Console
    sources: Sequence[Source]
    rules: RowRules
    model: LoadedModel
    prompts: prepare.PromptStage
    context: int
    stop: StopRequest
    sink: RowSink | None = None
    counters: Counters = field(default_factory=Counters)
    constraint_counts: ConstraintCounts = field(default_factory=ConstraintCounts)

    def run(self) -> int:
        from deepinfer_cli.engine import native

        settings = self.config.engine
        numerics = native.numerics(settings, native.planned_isa(self.model, settings))
        facts = {key: numerics[key] for key in ("isa", "version", "constraints")}
        manifest = self._manifest(settings_id(self.config, {**self._fingerprints(), **facts}), numerics)
        if not self.config.resume or not outputs.is_resumable(self.config):
            return self._attempt(self.config, manifest, resumed=False)
        written = outputs.settings_of_rows(outputs.output_paths(self.config))
        if written is None or written == manifest["settings_id"]:
            return self._attempt(self.config, manifest, resumed=True)
        if not self.config.force:
            outputs.refuse_other_settings(self.config, manifest, written)
        return self._rerun_all(manifest)

    def _rerun_all(self, manifest: dict[str, Any]) -> int:
        """--force after changed settings: the old rows stay until all new ones are there."""
        stage = outputs.staged(self.config)
        written = outputs.settings_of_rows(outputs.output_paths(stage))
        self.console.info(f"--force: all rows run again; {self.config.output.output} is replaced at the end")
        code = self._attempt(stage, manifest, resumed=written == manifest["settings_id"])
        if code in (EXIT_OK, EXIT_ROWS_FAILED):
            outputs.commit_staged(self.config, stage)
        return code

    def _attempt(self, config: RunConfig, manifest: dict[str, Any], *, resumed: bool) -> int:
        with ExitStack() as cleanup:
            started = time.monotonic()
            reader = outputs.make_reader(config, self.sources, self.console)
            cleanup.callback(reader.close)
            tables = outputs.new_tables() if resumed else None
            parser = prepare.make_parser(config, self.rules, self.console.once, tables)
            target: outputs.Outputs
            attempts: list[dict[str, Any]] = []
            earlier: dict[str, Any] = {}
            if tables is None:
                target = outputs.NewOutputs(config, self.console, self.sink, reader, parser)
                if config.resume:  # attempts that died before their first row
                    earlier = earlier_run(prepare.run_file_path(config))
                if earlier.get("settings_id") == manifest["settings_id"]:
                    attempts = earlier_attempts(earlier, num_rows=0, last_write=None)
            else:
                earlier = earlier_run(prepare.run_file_path(config))
                last_write = _last_change(config.output.output)
                target = outputs.ResumedOutputs.of(
                    config, self.console, self.rules, manifest["settings_id"], reader, parser, tables
                )
                cleanup.callback(target.spool.close)
                cleanup.enter_context(target.held)
                with self.stop.rows():
                    target.compare(self.counters, lambda: not self.stop.requested)
                attempts = earlier_attempts(earlier, num_rows=target.num_rows_before, last_write=last_write)
                if not self.stop.requested and not target.has_work:
                    close_killed(prepare.run_file_path(config), earlier, attempts, self.counters.as_json())
                if self.stop.requested or not target.has_work:
                    return self._say_nothing_to_do(reader)
            run_file = RunFile(
                prepare.run_file_path(config), manifest, attempts, rows_before=target.num_rows_before
            )
            outputs.say_other_build(self.console, earlier, manifest)
            engine = self._start_engine(cleanup, manifest)
            self._say_header(engine, manifest["numerics"], time.monotonic() - started)
            cleanup.enter_context(self.stop.rows())
            return self._loop(engine, run_file, manifest, target, reader)

    def _start_engine(self, cleanup: ExitStack, manifest: dict[str, Any]) -> Any:
        from deepinfer_cli.engine.native import NativeEngine

        engine = NativeEngine(
            self.model,
            self.config.engine,
            max_context=self.context,
            max_tokens_cap=self.config.sampling.max_tokens_cap,
            max_row_bytes=self.config.rows.max_row_bytes,
        )
        cleanup.callback(engine.close)
        numerics = engine.numerics(self.config.engine)
        if numerics["isa"] != manifest["numerics"]["isa"]:
            raise InternalError(f"computes with {numerics['isa']} instead of {manifest['numerics']['isa']}")
        manifest["kv_cache"] = {"bytes": engine.kv_plan.num_bytes, "tokens": engine.kv_plan.num_tokens}
        return engine

    def _say_nothing_to_do(self, reader: RowReader) -> int:
        """A resumed run whose output is complete: the exit code and summary that it deserves."""
        code, status = self._verdict(reader)
        if not self.stop.requested:
            self._say_summary(reader, 0.0, status)
        return code

    def _loop(
        self,
        engine: Any,
        run_file: RunFile,
        manifest: Mapping[str, Any],
        target: outputs.Outputs,
        reader: RowReader,
    ) -> int:
        from deepinfer_cli.engine.loop import BatchLoop

        counters = self.counters
        constraints = self._constraints(engine)
        num_done_before = counters.num_done
        is_open = False  # the outputs are ours: nobody else writes them
        started = time.monotonic()
        code, status = EXIT_FATAL, "failed"
        try:
            with self.console.progress() as progress:
                if self.sink is not None:
                    self.sink.start(self.config, manifest, progress)
                for stage in target.stages():
                    if not is_open:
                        is_open = True
                        run_file.write()
                    loop = BatchLoop(
                        reader=stage.reader,
                        parser=stage.parser,
                        prompts=self.prompts,
                        engine=engine,
                        constraints=constraints,
                        shape=self._shape(manifest["settings_id"]),
                        writer=stage.writer,
                        output=stage.output,
                        counters=counters,
                        stop=self.stop,
                        progress=progress,
                        max_failures=self.config.rows.max_failures,
                        file_names=self.rules.file_names,
                        max_open_bytes=open_bytes(self.config.engine.max_memory),
                    )
                    with (
                        self._watchdog(engine, loop, run_file).watching() as watchdog,
                        _saving_rows(stage),
                    ):
                        loop.run(watchdog)
                        for file in stage.files:
                            watchdog.beat(f"flushing {file.name} to the disk", engine_is_busy=False)
                            file.close()
                    if self.stop.requested:
                        break
            code, status = self._verdict(reader)
        except BrokenPipeError:
            code, status = EXIT_BROKEN_PIPE, "output closed"
            raise
        finally:
            constraints.close()
            seconds = time.monotonic() - started
            own = {"rows": counters.num_done - num_done_before, **counters.own(), "engine": engine.stats()}
            if self.constraint_counts.num_rows:
                own["constraints"] = self.constraint_counts.as_json()
            try:
                if is_open:
                    run_file.finish(status, code, own, counters.as_json(), seconds)
            except OutputError as error:  # the rows are there; the next run can do without this file
                self.console.warn(error.message)
            if is_open and status != "output closed":
                self._say_summary(reader, seconds, status, run_file.attempts)
        return code

    def _constraints(self, engine: Any) -> ConstraintStage:
        compiler = prepare.make_compiler(self.config, self.model)
        return ConstraintStage(
            compiler,
            self.constraint_counts,
            num_threads=engine.num_threads,
            after=self.model.end_of_thinking,
            decode=self.model.tokenizer.decode,
        )

    def _watchdog(self, engine: Any, loop: BatchLoop, run_file: RunFile) -> Watchdog:
        def on_hang(what: str, report: str | None) -> None:
            hint = "the rows written so far are whole; `watchdog: 0` turns this off"
            self.console.error(what if report is None else f"{what}; see {report}", hint)
            run_file.finish("hung", EXIT_FATAL, {}, self.counters.as_json(), 0.0)

        output = self.config.output.output
        beside = None if output in (None, STDOUT) or not Path(output).is_file() else output
        seconds = self.config.engine.watchdog
        return Watchdog(seconds, engine=engine, report_beside=beside, facts=loop.facts, on_hang=on_hang)

    def _verdict(self, reader: RowReader) -> tuple[int, str]:
        if self.stop.requested:
            return self.stop.exit_code, "interrupted"
        if reader.num_damaged:
            return EXIT_FATAL, "input damaged"
        return (EXIT_ROWS_FAILED if self.counters.num_failed else EXIT_OK), "complete"

    def _shape(self, run_id: str) -> Any:
        style = RowStyle(
            file_names=self.rules.file_names,
            settings_id=run_id,
            model_name=self.model.name,
            timing=self.config.output.timing,
        )
        token_bytes = self.model.tokenizer.token_bytes
        if self.config.output.output_format == "openai":
            from deepinfer_cli.results.openai_rows import OpenAIRows

            return OpenAIRows(style, token_bytes)
        from deepinfer_cli.results.assemble import NativeRows

        return NativeRows(style, token_bytes)

    def _fingerprints(self) -> dict[str, Any]:
        return {
            "model": self.model.fingerprint,
            "tokenizer": self.model.tokenizer.fingerprint,
            "template": self.model.renderer.fingerprint,
            "row_template": file_digest(self.config.rows.template),
            "constraint": constraint_digest(self.config),
        }

    def _manifest(self, run_id: str, numerics: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "deepinfer": __version__,
            "settings_id": run_id,
            "settings": self.config.as_json(),
            "model": {"name": self.model.name, "family": self.model.family, **self.model.description},
            "fingerprints": self._fingerprints(),
            "numerics": dict(numerics),
            "context": self.context,
            "kv_cache": None,  # filled in when the engine has planned it
            "inputs": prepare.input_fingerprint(self.sources),
            "output": self.config.output.output or STDOUT,
            "byte_stable": not self.config.output.timing,
        }

    def _say_header(self, engine: Any, numerics: Mapping[str, Any], seconds: float) -> None:
        info = self.console.info
        shown = [str(numerics[key]) for key in ("precision", "isa") if numerics[key]]
        shown.append(f"{engine.num_threads} threads")
        how = ", ".join(shown)
        info(f"model {self.model.name}: {how}; context {self.context:,}; ready in {seconds:.1f} s")
        info(f"KV cache: {engine.kv_plan}; up to {self.config.engine.max_num_seqs} samples at once")
        if engine.memory_plan is not None:
            info(f"memory of {engine.memory_plan}")
        info(_sampling_line(self.config))
        if self.config.output.timing:
            info("--timing: rows hold times, so this output differs from run to run")

    def _say_summary(
        self, reader: RowReader, seconds: float, status: str, attempts: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        for name, count in zip(self.rules.file_names, reader.rows_per_file, strict=True):
            if count == 0 and reader.done and status == "complete":
                self.console.warn(f"{name} has no rows")
        for line in summary(self.counters, seconds, damaged=reader.num_damaged, ran=True, attempts=attempts):
            self.console.info(line)
        if self.constraint_counts.num_rows:
            self.console.info(str(self.constraint_counts))
        output = self.config.output.output
        if status in ("interrupted", "failed") and self.sink is None and output not in (None, STDOUT):
            self.console.info(f"rows so far are in {output}; `--resume` goes on from there")
