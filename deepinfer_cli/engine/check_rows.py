"""--validate, --dry-run and the first pass of --strict: every row read and judged, none run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.engine.constraints import row_template
from deepinfer_cli.engine.counters import Counters, summary
from deepinfer_cli.engine.prepare import PromptStage, make_compiler, make_parser
from deepinfer_cli.errors import EXIT_FATAL, EXIT_OK, EXIT_ROWS_FAILED, InputError
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.requests.reader import RowReader
from deepinfer_cli.requests.sources import STDIN, Source
from deepinfer_cli.requests.types import FailedRow, FieldError, RequestRow, RowRules, SkippedRow
from deepinfer_cli.results.assemble import NativeRows
from deepinfer_cli.results.json_text import json_string, json_value
from deepinfer_cli.results.output_file import OutputFile
from deepinfer_cli.results.types import RowStyle

_KV_SIZES = {"f16": 1.0, "bf16": 1.0, "f32": 2.0, "int8": 0.5}  # relative to two bytes a value


class RowCheck:
    """One pass over all rows. Error rows go to `output` in the shape of a run's, nothing else does, except
    tokens under --show-tokens. Constraints are compiled as for a run: for the model's vocabulary, or for one
    of bytes without a model."""

    def __init__(
        self,
        config: RunConfig,
        sources: Sequence[Source],
        rules: RowRules,
        console: Console,
        model: LoadedModel | None = None,
    ) -> None:
        self.config = config
        self._compiler = make_compiler(config, model)
        self._console = console
        self._rules = rules
        self.counters = Counters()
        self.reader = RowReader(
            sources,
            max_row_bytes=config.rows.max_row_bytes,
            limit=config.rows.limit,
            on_damage=console.warn,
        )
        self._parser = make_parser(config, rules, console.once)
        style = RowStyle(rules.file_names, settings_id="", model_name="")
        self._shape = NativeRows(style, ())

    def run(
        self,
        output: OutputFile | None,
        prompts: PromptStage | None,
        model: LoadedModel | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        counters = self.counters
        show_tokens = self.config.show_tokens and model is not None
        while not is_stopped():
            raw = self.reader.next_line(0.2)
            if raw is None:
                if self.reader.done:
                    return
                if output is not None:  # the input has paused: show what is known
                    output.flush()
                continue
            counters.num_read += 1
            row = self._parser.parse(raw)
            if isinstance(row, SkippedRow):
                counters.num_other_shard += row.reason == "shard"
                counters.num_dropped_duplicates += row.reason == "duplicate"
                continue
            if isinstance(row, RequestRow):
                try:
                    token_ids, warnings = prompts.token_ids(row) if prompts else ([], row.warnings)
                    row_template(self._compiler, row)
                except FieldError as error:
                    row = FailedRow(row.identity, error.error, row.warnings)
            if isinstance(row, FailedRow):
                counters.add_failure(row.identity, row.error, self._rules.file_names)
                counters.by_warning.update(row.warnings)
                if output is not None:
                    output.write(self._shape.failed(row.identity, row.error, row.warnings))
                continue
            counters.num_ok += 1
            counters.by_warning.update(warnings)
            counters.num_prompt_tokens += len(token_ids)
            if len(token_ids) > counters.longest_prompt:
                counters.longest_prompt = len(token_ids)
                counters.longest_prompt_line = row.identity.line
            if show_tokens and output is not None and model is not None:
                output.write(_tokens_row(row, token_ids, model))


def _tokens_row(row: RequestRow, token_ids: list[int], model: LoadedModel) -> str:
    pieces = [model.tokenizer.token_bytes[t].decode(errors="replace") for t in token_ids]
    text = ",".join(json_string(piece) for piece in pieces)
    return (
        f'{{"id":{row.identity.id_json},"index":{row.identity.index},"num_tokens":{len(token_ids)},'
        f'"token_ids":{json_value(token_ids)},"tokens":[{text}]}}\n'
    )


@contextmanager
def rereadable(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """The sources, standard input and pipes copied to a temporary file: --strict reads everything twice."""
    if all(source.identity is not None and source.path != STDIN for source in sources):
        yield list(sources)
        return
    with tempfile.TemporaryDirectory(prefix="deepinfer-") as folder:
        copies = []
        for number, source in enumerate(sources):
            if source.identity is None or source.path == STDIN:
                path = os.path.join(folder, str(number))  # noqa: PTH118 - Source holds plain strings
                fd = os.dup(0) if source.path == STDIN else os.open(source.path, os.O_RDONLY)
                with os.fdopen(fd, "rb") as pipe, open(path, "wb") as copy:  # noqa: PTH123
                    shutil.copyfileobj(pipe, copy, 1 << 20)
                source = replace(source, path=path)
            copies.append(source)
        yield copies


def refuse_bad_rows(check: RowCheck) -> None:
    """--strict: one bad row and nothing runs."""
    check.run(None, None)
    counters = check.counters
    if check.reader.num_damaged:
        raise InputError("an input ends early (--strict)")
    if counters.num_failed:
        first, *more = counters.first_failures
        hint = "; ".join(more) or "without --strict bad rows become error rows and the others run"
        rows = "1 bad row" if counters.num_failed == 1 else f"{counters.num_failed:,} bad rows"
        raise InputError(f"{first} ({rows}; --strict)", hint)


def report(check: RowCheck, console: Console, *, model: LoadedModel | None, context: int) -> int:
    """The summary of --validate and --dry-run, and the exit code."""
    counters = check.counters
    lines = summary(counters, 0.0, damaged=check.reader.num_damaged, ran=False)
    for line in lines:
        console.info(line)
    if model is not None and counters.num_ok:
        mean = counters.num_prompt_tokens / counters.num_ok
        console.info(
            f"prompt tokens: {counters.num_prompt_tokens:,} in all, {mean:,.1f} on average, longest "
            f"{counters.longest_prompt:,} (line {counters.longest_prompt_line:,}) of {context:,}"
        )
        token_bytes = model.description.get("kv_bytes_per_token", 0) * _KV_SIZES[check.config.engine.kv_dtype]
        if token_bytes:
            longest = token_bytes * counters.longest_prompt / 2**20
            console.info(
                f"KV cache: {token_bytes:,.0f} bytes a token; {longest:,.1f} MiB for the longest prompt"
            )
        console.info("how long it takes: run the first rows with --limit 50 and see the rate in the summary")
    if check.reader.num_damaged:
        return EXIT_FATAL
    return EXIT_ROWS_FAILED if counters.num_failed else EXIT_OK
