"""The nouns of row input: what a line becomes, and the closed list of what can be wrong with it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from deepinfer_cli.constraints.types import ConstraintSpec
from deepinfer_cli.prompts.types import PromptInput

# Every code a row error can carry, with the sentence of the reference page. Closed: a code that is not
# here cannot be constructed.
ERROR_CODES: dict[str, str] = {
    "bad_json": "The line is not one JSON value (RFC 8259), or an object has the same key twice.",
    "bad_encoding": "The line is not valid UTF-8.",
    "not_an_object": "The line is JSON, but not an object.",
    "too_deep": "The value is nested deeper than 128 levels.",
    "row_too_large": "The line is longer than `max_row_bytes`, and was skipped without being held in memory; "
    "or it holds more keys or values than are taken.",
    "missing_prompt": "There is no prompt, or nothing is left of it after templating.",
    "unknown_field": "A key is a near miss of a known one (always), or is unknown (under `--strict`).",
    "bad_param": "A known field has a value of the wrong type, out of range, or in conflict with another.",
    "duplicate_id": "An earlier row of the run has the same id.",
    "context_overflow": "Prompt and one new token do not fit into the context.",
    "bad_schema": "The constraint is not well formed.",
    "unsupported_schema": "The constraint asks for something that this build does not enforce.",
    "constraint_truncated": "The text ended by length, or at a stop, before the constraint was complete.",
    "constraint_not_applied": "Generation ended without the constraint ever becoming active.",
    "constraint_violated": "The text is complete, but breaks what `schema_best_effort` left out.",
    "engine_error": "The engine failed on this row; its neighbours were not affected.",
    "aborted": "The row was given up before it finished.",
    "timeout": "The row exceeded its time limit.",
}

WARNING_CODES: dict[str, str] = {
    "replaced_surrogate": "A lone surrogate escape in the row was replaced by U+FFFD.",
    "truncated_prompt": "The prompt was cut to fit the context, as `truncate_prompt` asks.",
    "double_bos": "The prompt starts with two beginning-of-sequence tokens.",
    "schema_not_enforced": "The schema was enforced but for the keywords that `not_enforced` lists "
    "(`schema_best_effort`); the finished text was checked against all of it.",
    "validation_timeout": "Checking the finished text took more than a second, so it has no `parsed`. The "
    "only thing in a row that depends on the machine.",
    "generated_id": "The row is an OpenAI batch line without `custom_id`; its id was generated.",
}


@dataclass(frozen=True, slots=True)
class RowError:
    """Why a row has no result. `line` is added when the output row is written."""

    code: str
    message: str
    field: str | None = None  # path of the offending field, e.g. "messages[1].role"
    retryable: bool = False

    def __post_init__(self) -> None:
        if self.code not in ERROR_CODES:
            raise ValueError(f"not a row error code: {self.code}")


class FieldError(Exception):
    """A field that makes its row an error row; caught by the parser, never by the user."""

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.error = RowError(code, message, field)

    @classmethod
    def of(cls, error: RowError) -> FieldError:
        return cls(error.code, error.message, error.field)


@dataclass(frozen=True, slots=True)
class RawLine:
    """One non-blank line as it stood in the file, without its line end."""

    index: int  # 0-based ordinal among the non-blank rows of the run
    line: int  # 1-based physical line in its file; blank lines count
    file_number: int  # index into the run's list of inputs
    data: bytes | None  # None: longer than max_row_bytes
    num_bytes: int  # length of the line, also when data is None
    digest: bytes = b""  # of the line's bytes when data is None


@dataclass(frozen=True, slots=True)
class SamplingValues:
    """All sampling parameters of a row, resolved: row over run settings over defaults."""

    temperature: float = 1.0  # 0 = greedy
    top_p: float = 1.0  # (0, 1]
    top_k: int = 0  # 0 = off
    min_p: float = 0.0  # [0, 1]
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    max_tokens: int | None = None  # None: until the context ends, at most max_tokens_cap
    min_tokens: int = 0
    n: int = 1
    top_logprobs: int = -1  # -1 none, 0 the chosen token's, k also the k best
    prompt_logprobs: int = -1  # the same for prompt tokens
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, added to its logit)
    return_token_ids: bool = False


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """What every output row says of its input row, ready to be spliced into JSON."""

    index: int
    line: int
    file_number: int
    id_json: str | None  # exact JSON text of the id; None when the row could not be read
    id_generated: bool = False
    metadata_json: str | None = None  # exact JSON text of `metadata`
    columns_json: str | None = None  # object of the columns that --passthrough asks back
    request_hash: str = ""  # 16 hex digits over the line and the run's row settings
    envelope_url: str | None = None  # OpenAI batch rows: "/v1/chat/completions" or "/v1/completions"

    @property
    def held_bytes(self) -> int:
        """Memory of the row's own words, which stay until its output row is written."""
        kept = (self.id_json, self.metadata_json, self.columns_json)
        return sum([sys.getsizeof(text) for text in kept if text is not None])


@dataclass(frozen=True, slots=True)
class RequestRow:
    identity: RowIdentity
    prompt: PromptInput
    params: SamplingValues
    seed: int  # effective seed, 0 .. 2^63 - 1
    warnings: tuple[str, ...] = ()  # keys of WARNING_CODES
    field_prefix: str = ""  # "body." for envelopes: put before field names of later errors
    constraint: ConstraintSpec | None = None  # what the text must fit; the row's own, else the run's


@dataclass(frozen=True, slots=True)
class FailedRow:
    identity: RowIdentity
    error: RowError
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row that gets no output row: another shard's, past --limit, or a duplicate under `first`."""

    reason: str  # "shard" or "duplicate"


ParsedRow = RequestRow | FailedRow | SkippedRow


@dataclass(frozen=True, slots=True)
class RowRules:
    """The run's settings that decide how a line is read."""

    defaults: SamplingValues = field(default_factory=SamplingValues)
    run_seed: int = 0
    system: str | None = None
    chat: bool = False
    continue_final_message: bool = False
    prompt_field: str | None = None
    template_text: str | None = None  # Jinja source of --template
    passthrough: tuple[str, ...] = ()  # ("all",) = every unknown key
    id_prefix_files: tuple[str, ...] | None = None  # --id-prefix file: one prefix per input
    on_duplicate: str = "error"  # error | keep | first
    strict: bool = False
    model_name: str | None = None  # for the model-mismatch warning; None = not checked
    shard: tuple[int, int] | None = None  # (i, n): rows with index % n == i
    file_names: tuple[str, ...] = ()
    constraint: ConstraintSpec | None = None  # of rows that say nothing of one
    grammar_syntax: str = "auto"  # of rows' grammars that do not say theirs
    settings_digest: bytes = b""  # goes into every request hash
    vocab_size: int | None = None  # None without a model
