"""`deepinfer run`: checks, then the model, then the loop, then the summary and the exit code."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from deepinfer_cli import __version__
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.engine import check_rows, prepare
from deepinfer_cli.engine.counters import Counters, summary
from deepinfer_cli.engine.signals import StopRequest
from deepinfer_cli.errors import EXIT_BROKEN_PIPE, EXIT_FATAL, EXIT_OK, EXIT_ROWS_FAILED, OutputError
from deepinfer_cli.models.fake import is_fake, load_fake
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.requests.reader import RowReader
from deepinfer_cli.requests.sources import Source, expand
from deepinfer_cli.requests.types import RowRules
from deepinfer_cli.results.manifest import SCHEMA_VERSION, RunFile, file_digest, settings_id
from deepinfer_cli.results.output_file import STDOUT, OutputFile
from deepinfer_cli.results.sink import LineOutput, RowSink
from deepinfer_cli.results.types import RowStyle
from deepinfer_cli.results.writer import RowWriter


def run(config: RunConfig, console: Console, sink: RowSink | None = None) -> int:
    """The exit code; raises DeepInferError for what is fatal or refused. With a `sink`, rows go there."""
    with ExitStack() as cleanup:
        sources = expand(config.inputs)
        stdout_fd = console.data.fileno() if sink is None and _uses_stdout(config) else None
        if config.action == "run" and sink is None:
            prepare.check_outputs(config, sources, stdout_fd)
        rules = prepare.row_rules(config, sources, None)
        if config.action == "validate":
            check = check_rows.RowCheck(config, sources, rules, console)
            return _judge(check, console, None, None, 0)
        if config.rows.strict:
            sources = cleanup.enter_context(check_rows.rereadable(sources))
            check_rows.refuse_bad_rows(check_rows.RowCheck(config, sources, rules, console))
        model = load_model(config, console)
        config = config.with_model_defaults(model.generation_defaults)
        rules = prepare.row_rules(config, sources, model)
        from deepinfer_cli.engine.native import context_limit

        context = context_limit(model, config.engine.max_model_len)
        prompts = prepare.PromptStage(
            model, context=context, policy=config.rows.truncate_prompt, once=console.once
        )
        if config.action == "dry_run":
            console.info(f"model {model.name}; context {context:,}; nothing is run")
            console.info(_sampling_line(config))
            check = check_rows.RowCheck(config, sources, rules, console)
            return _judge(check, console, prompts, model, context)
        return _Run(config, console, sources, rules, model, prompts, context, sink).run()


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
    prompts: prepare.PromptStage | None,
    model: LoadedModel | None,
    context: int,
) -> int:
    output = OutputFile(console.data.fileno(), "standard output", None, owns_fd=False)
    check.run(output, prompts, model)
    output.flush()
    return check_rows.report(check, console, model=model, context=context)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run with a loaded model, from the first read to the exit code."""

    config: RunConfig
    console: Console
    sources: Sequence[Source]
    rules: RowRules
    model: LoadedModel
    prompts: prepare.PromptStage
    context: int
    sink: RowSink | None = None

    def run(self) -> int:
        from deepinfer_cli.engine.native import NativeEngine

        with ExitStack() as cleanup:
            started = time.monotonic()
            engine = NativeEngine(
                self.model,
                self.config.engine,
                max_context=self.context,
                max_tokens_cap=self.config.sampling.max_tokens_cap,
            )
            cleanup.callback(engine.close)
            stop = cleanup.enter_context(StopRequest())
            numerics = engine.numerics(self.config.engine)
            run_id = settings_id(self.config, {**self._fingerprints(), "isa": numerics.get("isa")})
            manifest = self._manifest(run_id, numerics, engine)
            run_file = RunFile(prepare.run_file_path(self.config), manifest)
            self._say_header(engine, numerics, time.monotonic() - started)
            return self._loop(engine, stop, run_file, manifest)

    def _loop(self, engine: Any, stop: StopRequest, run_file: RunFile, manifest: Mapping[str, Any]) -> int:
        from deepinfer_cli.engine.loop import BatchLoop

        config, counters = self.config, Counters()
        reader = RowReader(
            self.sources,
            max_row_bytes=config.rows.max_row_bytes,
            limit=config.rows.limit,
            on_damage=self.console.warn,
        )
        output, errors = self._open_outputs()
        run_file.write()
        started = time.monotonic()
        code, status = EXIT_FATAL, "failed"
        try:
            with self.console.progress() as progress:
                if self.sink is not None:
                    self.sink.start(config, manifest, progress)
                BatchLoop(
                    reader=reader,
                    parser=prepare.make_parser(config, self.rules, self.console.once),
                    prompts=self.prompts,
                    engine=engine,
                    shape=self._shape(manifest["settings_id"]),
                    writer=RowWriter(output, errors, keep_order=config.output.order == "input"),
                    output=output,
                    counters=counters,
                    stop=stop,
                    progress=progress,
                    max_failures=config.rows.max_failures,
                    file_names=self.rules.file_names,
                ).run()
            for file in (output, errors):
                if file is not None:
                    file.close()
            code, status = self._verdict(counters, reader, stop)
        except BrokenPipeError:
            code, status = EXIT_BROKEN_PIPE, "output closed"
            raise
        finally:
            reader.close()
            seconds = time.monotonic() - started
            try:
                more = {"seconds": round(seconds, 3), "engine": engine.stats()}
                run_file.finish(status, code, counters.as_json(), more)
            except OutputError as error:  # the rows are there; the next run can do without this file
                self.console.warn(error.message)
            if status != "output closed":
                self._say_summary(counters, reader, seconds, status)
        return code

    def _verdict(self, counters: Counters, reader: RowReader, stop: StopRequest) -> tuple[int, str]:
        if stop.requested:
            return stop.exit_code, "interrupted"
        if reader.num_damaged:
            return EXIT_FATAL, "input damaged"
        return (EXIT_ROWS_FAILED if counters.num_failed else EXIT_OK), "complete"

    def _open_outputs(self) -> tuple[LineOutput, LineOutput | None]:
        if self.sink is not None:
            return self.sink, None
        out = self.config.output
        if out.output in (None, STDOUT):
            output = OutputFile(self.console.data.fileno(), "standard output", None, owns_fd=False)
        else:
            output = OutputFile.create(str(out.output))
        return output, None if out.errors is None else OutputFile.create(out.errors)

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
        }

    def _manifest(self, run_id: str, numerics: Mapping[str, Any], engine: Any) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "deepinfer": __version__,
            "settings_id": run_id,
            "settings": self.config.as_json(),
            "model": {"name": self.model.name, "family": self.model.family, **self.model.description},
            "fingerprints": self._fingerprints(),
            "numerics": dict(numerics),
            "context": self.context,
            "kv_cache": {"bytes": engine.kv_plan.num_bytes, "tokens": engine.kv_plan.num_tokens},
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
        info(_sampling_line(self.config))
        if self.config.output.timing:
            info("--timing: rows hold times, so this output differs from run to run")

    def _say_summary(self, counters: Counters, reader: RowReader, seconds: float, status: str) -> None:
        for name, count in zip(self.rules.file_names, reader.rows_per_file, strict=True):
            if count == 0 and reader.done and status == "complete":
                self.console.warn(f"{name} has no rows")
        for line in summary(counters, seconds, damaged=reader.num_damaged, ran=True):
            self.console.info(line)
