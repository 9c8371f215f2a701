"""The settings table. Each field below is a YAML key, a `--set` name, an environment variable
DEEPINFER_<KEY> and, where `flags` says so, a command-line option; `per_row` ones may stand in a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal

from deepinfer_cli.config.spec import FailureLimit, Setting, Shard, setting, settings_of

PROFILES_KEY: Final = "profiles"  # the one key of a config file that is no setting
MAX_SEED: Final = 2**63 - 1
MAX_TOKEN_ID: Final = 2**31 - 1

Precision = Literal["precise", "fast", "bf16", "fp32"]
KvDtype = Literal["f16", "bf16", "f32", "int8"]
TruncatePrompt = Literal["error", "left", "middle"]
OnDuplicate = Literal["error", "keep", "first"]
IdPrefix = Literal["none", "file"]
Order = Literal["input", "completion"]
GrammarSyntax = Literal["auto", "gbnf", "w3c", "iso", "lark"]
JsonWhitespace = Literal["bounded", "compact"]
OutputFormat = Literal["native", "openai"]
ProgressMode = Literal["auto", "bar", "plain", "json", "none"]
ColorMode = Literal["auto", "always", "never"]
LogFormat = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model answers."""

    model: str | None = setting(
        None,
        "Model: a known name, a GGUF file or a folder with safetensors; without one the small model is used",
        flags=("--model", "-m"),
        metavar="NAME|PATH",
        changes_answers=True,
    )
    revision: str | None = setting(
        None,
        "Revision of a model on the hub (branch, tag or commit)",
        flags=("--revision",),
        metavar="REV",
        changes_answers=True,
    )
    tokenizer: str | None = setting(
        None,
        "Folder or tokenizer.json to use in place of the model's own",
        kind="path",
        flags=("--tokenizer",),
        metavar="PATH",
        changes_answers=True,
    )
    chat_template: str | None = setting(
        None,
        "File with a Jinja chat template to use in place of the model's own",
        kind="path",
        flags=("--chat-template",),
        metavar="FILE",
        changes_answers=True,
    )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine computes. Batch size, threads, chunk and cache never change an answer."""

    accelerator: Literal["cpu", "nvidia", "ascend"] = setting(
        "cpu", "Device that computes", flags=("--accelerator",), changes_answers=True
    )
    precision: Precision = setting(
        "precise",
        "Arithmetic: for block-quantised weights precise (int8 activations, int16 where a block of 32 holds "
        "a large value) or fast (int8 activations); for all weights bf16 or fp32",
        flags=("--precision",),
        changes_answers=True,
    )
    residual_threshold: float = setting(
        3.5,
        "For `precise`: a block of activations gets 16 bits if its largest value exceeds this times the "
        "row's root mean square; 0 = all blocks",
        minimum=0.0,
        maximum=1e6,
        changes_answers=True,
    )
    kv_dtype: KvDtype = setting(
        "f16", "Storage type of the KV cache", flags=("--kv-dtype",), changes_answers=True
    )
    isa: str = setting(
        "auto",
        "Instruction set level of the kernels; `deepinfer doctor` lists what this CPU has",
        flags=("--isa",),
        metavar="LEVEL",
        changes_answers=True,
    )
    threads: int = setting(
        0, "Worker threads; 0 = all cores", flags=("--threads",), minimum=0, maximum=1024, metavar="N"
    )
    max_model_len: int | None = setting(
        None,
        "Longest prompt plus output; default is the model's own limit",
        flags=("--max-model-len",),
        minimum=1,
        maximum=2**31 - 1,
        metavar="N",
        unit="tokens",
        changes_answers=True,
    )
    max_num_seqs: int = setting(
        64,
        "Samples computed at the same time",
        flags=("--max-num-seqs",),
        minimum=1,
        maximum=65536,
        metavar="N",
    )
    max_step_tokens: int = setting(
        0,
        "Tokens computed in one step, over all samples; 0 = tuned while the run goes, 1024 at most",
        flags=("--max-step-tokens",),
        minimum=0,
        maximum=2**20,
        metavar="N",
        unit="tokens",
    )
    prefill_chunk: int = setting(
        512,
        "Prompt tokens of one row computed in one step",
        flags=("--prefill-chunk",),
        minimum=1,
        maximum=2**20,
        metavar="N",
        unit="tokens",
    )
    kv_cache_bytes: int = setting(
        0,
        "Memory for the KV cache, such as 2GiB; 0 = from what is free",
        kind="bytes",
        flags=("--kv-cache-bytes",),
        minimum=0,
        maximum=2**50,
        metavar="SIZE",
        unit="bytes",
    )
    max_memory: int = setting(
        0,
        "Bound on the memory of the whole process, such as 4GiB; the KV cache gets what weights and rows "
        "leave; 0 = none",
        kind="bytes",
        flags=("--max-memory",),
        minimum=0,
        maximum=2**50,
        metavar="SIZE",
        unit="bytes",
    )
    watchdog: float = setting(
        600,
        "End a run in which nothing has moved for so many seconds, with a report; 0 = never",
        flags=("--watchdog",),
        minimum=0,
        maximum=10**9,
        metavar="SECONDS",
        unit="seconds",
    )
    kv_block_tokens: int = setting(
        32, "Tokens in one KV block", minimum=1, maximum=4096, metavar="N", unit="tokens"
    )
    prefix_cache: bool = setting(
        True,
        "Compute a prefix that rows share only once",
        flags=("--prefix-cache",),
        off_flags=("--no-prefix-cache",),
    )
    async_scheduling: bool = setting(
        True, "With several threads, look for stop strings while the next step is computed; the same results"
    )


def _row_setting(default: Any, help: str, **details: Any) -> Any:
    return setting(default, help, per_row=True, changes_answers=True, **details)


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """Defaults of what a row may set itself."""

    temperature: float = _row_setting(
        1.0,
        "Randomness; 0 = always the most likely token",
        flags=("--temperature",),
        minimum=0,
        maximum=100,
    )
    top_p: float = _row_setting(
        1.0,
        "Keep the likeliest tokens that sum to this probability",
        flags=("--top-p",),
        minimum=0,
        exclusive_minimum=True,
        maximum=1,
    )
    top_k: int = _row_setting(
        0, "Keep this many likeliest tokens; 0 = all", flags=("--top-k",), minimum=0, maximum=MAX_TOKEN_ID
    )
    min_p: float = _row_setting(
        0.0,
        "Keep tokens with at least this share of the best one's probability",
        flags=("--min-p",),
        minimum=0,
        maximum=1,
    )
    presence_penalty: float = _row_setting(
        0.0,
        "Subtracted once from tokens already generated",
        flags=("--presence-penalty",),
        minimum=-2,
        maximum=2,
    )
    frequency_penalty: float = _row_setting(
        0.0,
        "Subtracted for each time a token was generated",
        flags=("--frequency-penalty",),
        minimum=-2,
        maximum=2,
    )
    repetition_penalty: float = _row_setting(
        1.0,
        "Divides the score of tokens in prompt or output; 1 = off",
        flags=("--repetition-penalty",),
        minimum=0,
        exclusive_minimum=True,
        maximum=100,
    )
    seed: int = _row_setting(
        0,
        "Seed of the run; a row without a seed of its own derives one from this and its id",
        flags=("--seed",),
        minimum=0,
        maximum=MAX_SEED,
        metavar="N",
        aliases=("seq_seed",),
    )
    max_tokens: int | None = _row_setting(
        None,
        "Longest output; default is to the end of the context, but no more than max_tokens_cap",
        flags=("--max-tokens",),
        minimum=0,
        maximum=2**63 - 1,
        metavar="N",
        unit="tokens",
        aliases=("max_completion_tokens",),
    )
    max_tokens_cap: int = setting(
        1024,
        "Longest output of a row for which nobody set max_tokens",
        minimum=1,
        maximum=2**31 - 1,
        metavar="N",
        unit="tokens",
        changes_answers=True,
    )
    min_tokens: int = _row_setting(
        0,
        "Shortest output: stops are held off before this many tokens",
        flags=("--min-tokens",),
        minimum=0,
        maximum=2**31 - 1,
        metavar="N",
        unit="tokens",
    )
    n: int = _row_setting(
        1, "Outputs per row, from one prefill", flags=("--n", "-n"), minimum=1, maximum=10000, metavar="N"
    )
    stop: tuple[str, ...] = _row_setting(
        (), "Text that ends an output and is cut from it; repeatable", flags=("--stop",), metavar="TEXT"
    )
    stop_token_ids: tuple[int, ...] = _row_setting(
        (),
        "Token ids that end an output; repeatable or separated by commas",
        flags=("--stop-token-ids",),
        metavar="ID,...",
        split_commas=True,
        minimum=0,
        maximum=MAX_TOKEN_ID,
    )
    include_stop: bool = _row_setting(
        False, "Keep the stop text in the output", flags=("--include-stop",), off_flags=("--no-include-stop",)
    )
    ignore_eos: bool = _row_setting(
        False,
        "Go on after the model's end-of-sequence token",
        flags=("--ignore-eos",),
        off_flags=("--no-ignore-eos",),
    )
    logprobs: bool = _row_setting(
        False,
        "Give the log-probability of each output token (the model's own, before temperature and penalties)",
        flags=("--logprobs",),
        off_flags=("--no-logprobs",),
    )
    top_logprobs: int | None = _row_setting(
        None,
        "Give this many likeliest alternatives per output token; implies logprobs",
        flags=("--top-logprobs",),
        minimum=0,
        maximum=100,
        metavar="N",
    )
    prompt_logprobs: int | None = _row_setting(
        None,
        "Score the prompt's tokens, with this many alternatives each",
        flags=("--prompt-logprobs",),
        minimum=0,
        maximum=100,
        metavar="N",
    )
    return_token_ids: bool = _row_setting(
        False,
        "Give the token ids of each output",
        flags=("--return-token-ids",),
        off_flags=("--no-return-token-ids",),
    )
    logit_bias: tuple[tuple[int, float], ...] = _row_setting(
        (),
        "Added to the score of a token id; repeatable",
        flags=("--logit-bias",),
        metavar="ID=BIAS",
        minimum=-100,
        maximum=100,
    )


@dataclass(frozen=True, slots=True)
class ConstraintConfig:
    """What all texts must fit. Of the first five one is given; the strongest layer that names one wins."""

    constraint: dict[str, Any] | None = _row_setting(
        None,
        "What texts must fit: one of json_schema, regex, choice, grammar or json_object, as in a row",
    )
    json_schema: str | None = setting(
        None,
        "File with a JSON Schema that texts must fit",
        kind="path",
        flags=("--json-schema",),
        metavar="FILE",
        changes_answers=True,
    )
    regex: str | None = setting(
        None,
        "Regular expression (Python's) that whole texts must match",
        flags=("--regex",),
        metavar="PATTERN",
        changes_answers=True,
    )
    choice: tuple[str, ...] = setting(
        (), "Texts of which each answer is one; repeatable", flags=("--choice",), changes_answers=True
    )
    grammar: str | None = setting(
        None,
        "File with a grammar that texts must fit",
        kind="path",
        flags=("--grammar",),
        metavar="FILE",
        changes_answers=True,
    )
    grammar_syntax: GrammarSyntax = setting(
        "auto",
        "Syntax of grammars that do not say theirs",
        flags=("--grammar-syntax",),
        changes_answers=True,
    )
    json_whitespace: JsonWhitespace = setting(
        "bounded",
        "White space in JSON: bounded lets a model indent as people do, compact lets it write none",
        flags=("--json-whitespace",),
        changes_answers=True,
    )
    schema_best_effort: bool = setting(
        False,
        "Leave out what cannot be enforced exactly in a schema; rows list it, and texts are still checked",
        flags=("--schema-best-effort",),
        off_flags=("--no-schema-best-effort",),
        changes_answers=True,
    )


@dataclass(frozen=True, slots=True)
class RowsConfig:
    """How rows are read and turned into prompts."""

    chat: bool = _row_setting(
        False,
        "Send `prompt` through the chat template as one user message",
        flags=("--chat",),
        off_flags=("--no-chat",),
    )
    system: str | None = _row_setting(
        None, "System message for rows that have none", flags=("--system",), metavar="TEXT"
    )
    continue_final_message: bool = _row_setting(
        False,
        "A last message of the assistant is continued, not answered",
        flags=("--continue-final-message",),
        off_flags=("--no-continue-final-message",),
    )
    truncate_prompt: TruncatePrompt = setting(
        "error",
        "What happens to a prompt that does not fit: an error row, or cut on the left or in the middle",
        flags=("--truncate-prompt",),
        changes_answers=True,
    )
    prompt_field: str | None = setting(
        None,
        "Name of the column that holds the prompt",
        flags=("--prompt-field",),
        metavar="NAME",
        changes_answers=True,
    )
    template: str | None = setting(
        None,
        "File with a Jinja template that makes the prompt from the row's columns",
        kind="path",
        flags=("--template",),
        metavar="FILE",
        changes_answers=True,
    )
    passthrough: tuple[str, ...] = setting(
        (),
        "Input columns copied to the output row: names separated by commas, or `all`",
        flags=("--passthrough",),
        metavar="COL,...|all",
        split_commas=True,
        changes_answers=True,
    )
    id_prefix: IdPrefix = setting(
        "none",
        "`file` puts the file's name in front of each id, so that ids need to be unique only per file",
        flags=("--id-prefix",),
        changes_answers=True,
    )
    on_duplicate: OnDuplicate = setting(
        "error",
        "A second row with the same id: an error row, kept, or left out of the output (first)",
        flags=("--on-duplicate",),
        changes_answers=True,
    )
    strict: bool = setting(
        False,
        "Check all rows first and refuse to start if one is bad; unknown keys are errors",
        flags=("--strict",),
        off_flags=("--no-strict",),
    )
    max_failures: FailureLimit | None = setting(
        None,
        "Give up when more rows than this have failed: a count, or a share such as 5%",
        flags=("--max-failures",),
        metavar="N|P%",
    )
    max_row_bytes: int = setting(
        64 << 20,
        "Longest row; a longer one becomes an error row without being held in memory",
        kind="bytes",
        flags=("--max-row-bytes",),
        minimum=1024,
        maximum=1 << 30,
        metavar="SIZE",
        unit="bytes",
    )
    limit: int | None = setting(
        None, "Run only the first N rows", flags=("--limit",), minimum=0, maximum=2**63 - 1, metavar="N"
    )
    shard: Shard | None = setting(
        None,
        "Run only the rows whose index modulo n is i, to split a file over machines",
        flags=("--shard",),
        metavar="I/N",
    )


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """Where results go, and what is said meanwhile."""

    output: str | None = setting(
        None,
        "File for the result rows; `-` or nothing is stdout; .gz and .zst are compressed",
        kind="path",
        flags=("--output", "-o"),
        metavar="FILE",
    )
    errors: str | None = setting(
        None,
        "Write error rows to this file and leave them out of the output",
        kind="path",
        flags=("--errors",),
        metavar="FILE",
    )
    output_format: OutputFormat = setting(
        "native",
        "Shape of the output rows",
        flags=("--output-format",),
        changes_answers=True,
    )
    order: Order = setting(
        "input",
        "Rows come out in input order, or as they finish",
        flags=("--order",),
    )
    overwrite: bool = setting(
        False,
        "Replace an output file that is not empty",
        flags=("--overwrite",),
        off_flags=("--no-overwrite",),
    )
    fsync: float | None = setting(
        5.0,
        "Seconds between syncs of the output to the disk, which is what a power loss can cost; null: only at "
        "the end",
        flags=("--fsync",),
        minimum=0,
        maximum=86400,
        metavar="SECONDS",
        unit="s",
    )
    run_file: str | None = setting(
        None,
        "File for settings, fingerprints and build; default is OUTPUT.run.json",
        kind="path",
        flags=("--run-file",),
        metavar="FILE",
    )
    timing: bool = setting(
        False,
        "Add times and cache counts to each row; such files differ from run to run",
        flags=("--timing",),
        off_flags=("--no-timing",),
    )
    progress: ProgressMode = setting(
        "auto",
        "Progress on stderr: auto is a bar on a terminal and a line every 30 s elsewhere",
        flags=("--progress",),
    )
    quiet: bool = setting(False, "Only warnings and errors", flags=("--quiet", "-q"))
    verbose: int = setting(
        0, "Say more; twice says even more", flags=("--verbose", "-v"), minimum=0, maximum=2, metavar="N"
    )
    color: ColorMode = setting(
        "auto", "Colour on stderr; auto also obeys NO_COLOR and TERM=dumb", flags=("--color",)
    )
    log_format: LogFormat = setting(
        "text", "Messages as text or as one JSON object a line", flags=("--log-format",)
    )
    log_file: str | None = setting(
        None, "Also append all messages to this file", kind="path", flags=("--log-file",), metavar="FILE"
    )


GROUPS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "model": ModelConfig,
        "engine": EngineConfig,
        "sampling": SamplingConfig,
        "constraints": ConstraintConfig,
        "rows": RowsConfig,
        "output": OutputConfig,
    }
)


@cache
def all_settings() -> Mapping[str, Setting]:
    """The table by key, in order of declaration."""
    return MappingProxyType({s.key: s for group, cls in GROUPS.items() for s in settings_of(group, cls)})


@cache
def aliases() -> Mapping[str, str]:
    """Other spelling of a key -> the key."""
    return MappingProxyType({alias: s.key for s in all_settings().values() for alias in s.aliases})


def suggestion(written: str, *, profiles: bool = False) -> str:
    """A hint that names the setting that was probably meant, or says where all are listed."""
    import difflib

    names = [*all_settings(), *aliases(), *([PROFILES_KEY] if profiles else [])]
    close = difflib.get_close_matches(written.lower().replace("-", "_"), names, n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else "docs/reference/config.md lists the settings"
