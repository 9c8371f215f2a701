"""The requests of a repetition: made from texts of ours, or the user's own rows."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from deepinfer_cli.bench.measure import WARMUP_TOKENS, Ask
from deepinfer_cli.bench.prompts import PromptMaker
from deepinfer_cli.bench.spec import Cell
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.engine import prepare
from deepinfer_cli.engine.constraints import row_template
from deepinfer_cli.errors import InputError
from deepinfer_cli.models.types import LoadedModel, Tokenizer
from deepinfer_cli.requests.reader import RowReader
from deepinfer_cli.requests.sources import expand
from deepinfer_cli.requests.types import FailedRow, FieldError, RequestRow, SamplingValues

_SHOWN: Final = 3


class AskSource(Protocol):
    expects_lengths: bool  # every answer has exactly max_tokens

    def asks(self, cell: Cell, repetition: int) -> list[Ask]: ...
    def warmup(self, cell: Cell, repetition: int) -> list[Ask]: ...


class SyntheticAsks:
    """Prompts of exact length; answers of exact length, because ends of sequence are ignored."""

    expects_lengths = True

    def __init__(self, tokenizer: Tokenizer, salt: str = "") -> None:
        """`salt`: makes the prompts of one run unlike those of another with the same seed."""
        self._tokenizer = tokenizer
        self._salt = salt
        self._makers: dict[int, PromptMaker] = {}

    def asks(self, cell: Cell, repetition: int) -> list[Ask]:
        shared = cell.load.prompts == "repeated"
        name = "repeated" if shared else f"{cell.index} {repetition}"
        return [self._ask(cell, f"{name} {i}", cell.load.output_len) for i in range(cell.num_prompts)]

    def warmup(self, cell: Cell, repetition: int) -> list[Ask]:
        count = min(cell.load.output_len, WARMUP_TOKENS)
        return [
            self._ask(cell, f"warm-up {cell.index} {repetition} {i}", count) for i in range(cell.load.warmup)
        ]

    def _ask(self, cell: Cell, name: str, output_len: int) -> Ask:
        load = cell.load
        if load.seed not in self._makers:
            self._makers[load.seed] = PromptMaker(self._tokenizer, load.seed)
        params = SamplingValues(
            temperature=load.temperature, max_tokens=output_len, min_tokens=output_len, ignore_eos=True
        )
        return Ask(self._makers[load.seed].prompt(self._salt + name, load.input_len), params, load.seed)


class RowAsks:
    """The user's own rows, each as `deepinfer run` would run it."""

    expects_lengths = False

    def __init__(self, rows: Sequence[Ask]) -> None:
        self._rows = rows

    def asks(self, cell: Cell, repetition: int) -> list[Ask]:
        """All rows, or the first `num_prompts` of them when the load says so."""
        return list(self._rows[: cell.load.num_prompts])

    def warmup(self, cell: Cell, repetition: int) -> list[Ask]:
        """The last rows, cut short: what they leave in the prefix cache meets the first ones as rarely as
        possible."""
        short = []
        for row in self._rows[-cell.load.warmup :] if cell.load.warmup else []:
            tokens = min(row.params.max_tokens or WARMUP_TOKENS, WARMUP_TOKENS)
            params = dataclasses.replace(
                row.params, max_tokens=tokens, min_tokens=min(row.params.min_tokens, tokens)
            )
            short.append(dataclasses.replace(row, params=params))
        return short


def read_rows(config: RunConfig, path: str, model: LoadedModel, context: int, console: Console) -> list[Ask]:
    """Every row of a file, rendered and tokenised. One bad row refuses the file: a benchmark of the others
    would be another workload."""
    sources = expand((path,))
    rules = prepare.row_rules(config, sources, model)
    parser = prepare.make_parser(config, rules, console.once)
    stage = prepare.PromptStage(model, context=context, policy=config.rows.truncate_prompt, once=console.once)
    compiler = prepare.make_compiler(config, model)
    reader = RowReader(
        sources, max_row_bytes=config.rows.max_row_bytes, limit=config.rows.limit, on_damage=console.warn
    )
    asks: list[Ask] = []
    bad: list[str] = []
    try:
        while not reader.done:
            raw = reader.next_line(1.0)
            if raw is None:
                continue
            parsed = parser.parse(raw)
            if isinstance(parsed, FailedRow):
                bad.append(f"line {raw.line}: {parsed.error.message}")
            if not isinstance(parsed, RequestRow):
                continue
            try:
                params = _one_sample(parsed.params)
                constraint = row_template(compiler, parsed)
                asks.append(Ask(stage.token_ids(parsed)[0], params, parsed.seed, constraint))
            except FieldError as error:
                bad.append(f"line {raw.line}: {error.error.message}")
    finally:
        reader.close()
    if bad:
        raise InputError(f"{path}: {len(bad):,} rows cannot run; {'; '.join(bad[:_SHOWN])}")
    if not asks:
        raise InputError(f"{path} has no rows")
    return asks


def _one_sample(params: SamplingValues) -> SamplingValues:
    if params.n != 1:
        raise FieldError("bad_param", "n is above 1, and a benchmark measures one sample per row", "n")
    return params


def rows_digest(path: str) -> str:
    digest = hashlib.sha256()
    for source in expand((path,)):
        digest.update(Path(source.path).read_bytes())
    return digest.hexdigest()
