"""From a run's settings to the pieces of its loop, and everything that is refused before a row runs."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import SamplingConfig
from deepinfer_cli.config.text_file import read_text_file
from deepinfer_cli.constraints.cache import MAX_KEPT, ConstraintCompiler
from deepinfer_cli.constraints.fields import run_constraint, run_options
from deepinfer_cli.constraints.types import ConstraintError
from deepinfer_cli.engine.fit import check_result_size, fit_prompt, result_size, text_limit
from deepinfer_cli.engine.memory import KEPT_CONSTRAINTS
from deepinfer_cli.errors import ConfigError, UsageError
from deepinfer_cli.models.fake import load_fake
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.prompts.budget import MAX_TEMPLATE_BYTES
from deepinfer_cli.prompts.types import PromptError
from deepinfer_cli.requests.parser import RowParser
from deepinfer_cli.requests.scan import IdTable, RowTable
from deepinfer_cli.requests.sources import Source
from deepinfer_cli.requests.types import FieldError, RequestRow, RowRules, SamplingValues
from deepinfer_cli.results.manifest import row_settings_digest
from deepinfer_cli.results.output_file import STDOUT, check_output, refuse_same_file

Once = Callable[[str, str], None]  # (key, sentence): said the first time only


def sampling_defaults(s: SamplingConfig) -> SamplingValues:
    """The run's sampling settings in the shape rows are resolved to."""
    top = -1 if s.top_logprobs is None else s.top_logprobs
    return SamplingValues(
        temperature=s.temperature,
        top_p=s.top_p,
        top_k=s.top_k,
        min_p=s.min_p,
        presence_penalty=s.presence_penalty,
        frequency_penalty=s.frequency_penalty,
        repetition_penalty=s.repetition_penalty,
        stop=s.stop,
        stop_token_ids=s.stop_token_ids,
        include_stop=s.include_stop,
        max_tokens=s.max_tokens,
        min_tokens=s.min_tokens,
        n=s.n,
        top_logprobs=max(top, 0) if s.logprobs else top,
        prompt_logprobs=-1 if s.prompt_logprobs is None else s.prompt_logprobs,
        ignore_eos=s.ignore_eos,
        logit_bias=s.logit_bias,
        return_token_ids=s.return_token_ids,
    )


def row_rules(config: RunConfig, sources: Sequence[Source], model: LoadedModel | None) -> RowRules:
    rows = config.rows
    names = tuple(source.name for source in sources)
    prefixes = tuple(Path(name).name for name in names) if rows.id_prefix == "file" else None
    if prefixes is not None and len(set(prefixes)) < len(prefixes):
        prefixes = names  # two folders hold files of one name
    return RowRules(
        defaults=sampling_defaults(config.sampling),
        run_seed=config.sampling.seed,
        system=rows.system,
        chat=rows.chat,
        continue_final_message=rows.continue_final_message,
        prompt_field=rows.prompt_field,
        template_text=_template_text(rows.template),
        passthrough=rows.passthrough,
        id_prefix_files=prefixes,
        on_duplicate=rows.on_duplicate,
        strict=rows.strict,
        model_name=None if model is None else model.name,
        shard=None if rows.shard is None else (rows.shard.index, rows.shard.count),
        file_names=names,
        constraint=run_constraint(config),
        grammar_syntax=config.constraints.grammar_syntax,
        settings_digest=row_settings_digest(config),
        vocab_size=None if model is None else model.tokenizer.vocab_size,
    )


def _template_text(path: str | None) -> str | None:
    return None if path is None else read_text_file(path, "template", MAX_TEMPLATE_BYTES)


def make_parser(
    config: RunConfig, rules: RowRules, once: Once, tables: tuple[RowTable, RowTable] | None = None
) -> RowParser:
    """`tables`: ids seen, and occurrences of rows without an id; new ones unless given."""
    seen, occurrences = tables or (IdTable(), IdTable())
    try:
        return RowParser(rules, seen, occurrences, once)
    except ValueError as error:
        raise ConfigError(f"the template {config.rows.template} is not valid: {error}") from None


def make_compiler(config: RunConfig, model: LoadedModel | None) -> ConstraintCompiler:
    """Without a model the constraint engine works on a vocabulary of bytes."""
    from deepinfer_cli.constraints.backend import ConstraintBackend

    backend = ConstraintBackend(model or load_fake("fake"))
    max_kept = KEPT_CONSTRAINTS if config.engine.max_memory else MAX_KEPT
    return ConstraintCompiler(backend, run_options(config), max_kept=max_kept)


def check_run_constraint(config: RunConfig, rules: RowRules) -> None:
    """A constraint of the run that cannot be enforced is refused as a whole, before anything is loaded."""
    spec = rules.constraint
    if spec is None:
        return
    found = make_compiler(config, None).get(spec)
    if isinstance(found, ConstraintError):
        where = config.origin(spec.field.partition(".")[0])
        place = f" (at {found.pointer})" if found.pointer else ""
        raise ConfigError(f"{where}: {found.message}{place}")


def check_outputs(config: RunConfig, sources: Sequence[Source], stdout_fd: int | None) -> None:
    """Every file the run would write, before anything is read or loaded."""
    out = config.output
    files = {"output": out.output, "error file": out.errors, "run file": run_file_path(config)}
    seen: dict[str, str] = {}
    for what, path in files.items():
        if path is None or path == STDOUT:
            continue
        real = os.path.realpath(path)
        if real in seen:
            raise UsageError(f"{path} is both {seen[real]} and {what}")
        seen[real] = what
        # The run file belongs to its output and is replaced together with it.
        overwrite = out.overwrite or what == "run file"
        resume = config.resume and what != "run file"
        check_output(path, what=what, overwrite=overwrite, sources=sources, resume=resume)
    if out.output in (None, STDOUT) and stdout_fd is not None:
        info = os.fstat(stdout_fd)
        if stat.S_ISREG(info.st_mode):
            refuse_same_file("standard output", (info.st_dev, info.st_ino), sources)


def run_file_path(config: RunConfig) -> str | None:
    out = config.output
    if out.run_file is not None or out.output in (None, STDOUT):
        return out.run_file
    info = Path(out.output)
    if info.exists() and not info.is_file():
        return None  # a device or a named pipe has nothing beside it
    return f"{out.output}.run.json"


def input_fingerprint(sources: Sequence[Source]) -> list[dict[str, object]]:
    """Names, sizes and a hash of the first 64 KiB of each regular file: enough to notice another input."""
    described: list[dict[str, object]] = []
    for source in sources:
        entry: dict[str, object] = {"name": source.name, "bytes": source.num_bytes}
        if source.identity is not None and source.path != STDOUT:
            with Path(source.path).open("rb") as file:
                entry["head_sha256"] = hashlib.sha256(file.read(1 << 16)).hexdigest()
        described.append(entry)
    return described


class PromptStage:
    """A row's prompt to the token ids that run: rendered, checked for BOS, fitted into the context."""

    def __init__(
        self, model: LoadedModel, *, context: int, policy: str, once: Once, max_tokens_cap: int = 2**31 - 1
    ) -> None:
        self._renderer = model.renderer
        self._context = context
        self._policy = policy
        self._limit = text_limit(context, policy)
        self._max_tokens_cap = max_tokens_cap
        self._can_grow = context < model.max_context
        self._once = once
        self._hint_raw = model.renderer.has_template

    def held_bytes(self, params: SamplingValues, num_ids: int) -> int:
        """Memory of a request and its result while it runs: prompt, output ids and text, scores."""
        tokens, scores = result_size(params, num_ids, self._context, self._max_tokens_cap)
        settings = 64 * sum(map(len, params.stop)) + 32 * (
            len(params.stop_token_ids) + len(params.logit_bias)
        )
        return (
            8 * num_ids + 8 * tokens + 16 * scores + settings
        )  # ids: in the request and in its first sample

    def token_ids(self, row: RequestRow) -> tuple[list[int], tuple[str, ...]]:
        """(ids, the row's warnings). Raises FieldError when the row cannot run."""
        prefix = row.field_prefix
        if self._hint_raw and row.prompt.text is not None and not row.prompt.chat:
            self._hint_raw = False
            self._once(
                "raw-prompt",
                "`prompt` is raw text for this chat model: it will continue it, not answer it "
                "(use messages, or --chat)",
            )
        try:
            rendered = self._renderer.render(row.prompt, self._limit)
        except PromptError as error:
            field = None if error.field is None else prefix + error.field
            raise FieldError(error.code, error.message, field) from None
        if not rendered.token_ids:
            field = prefix + ("messages" if row.prompt.messages is not None else "prompt")
            raise FieldError("missing_prompt", f"{field} is empty: there is no token to start from", field)
        token_ids, was_cut = fit_prompt(
            rendered.token_ids,
            num_bos=rendered.num_bos,
            max_tokens=row.params.max_tokens,
            limit=self._context,
            policy=self._policy,
            can_grow=self._can_grow,
        )
        check_result_size(row.params, len(token_ids), self._context, self._max_tokens_cap, prefix)
        found = (*rendered.warnings, "truncated_prompt") if was_cut else rendered.warnings
        return token_ids, tuple(dict.fromkeys((*row.warnings, *found)))
