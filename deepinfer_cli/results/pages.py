# ruff: noqa: E501 - a row of a Markdown table is one line
"""Reference pages of rows and of errors, made from the tables that the code works with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deepinfer_cli.requests import fields
from deepinfer_cli.requests.params import PARAMS, SEED
from deepinfer_cli.requests.types import ERROR_CODES, WARNING_CODES
from deepinfer_cli.results.openai_rows import status_code
from deepinfer_cli.results.writer import MAX_OPEN_BYTES, MAX_OPEN_ROWS

_ROWS_INTRO: Final = """# Rows

## Input

One JSON object a line, in UTF-8. A line ends at the byte 0x0A and nowhere else; a carriage return before it
is white space. Blank lines are skipped, but count for line numbers. One byte order mark per file is dropped.
The last line needs no line end. gzip and zstd are found by their first bytes, whatever the name, also on
stdin; several members or frames after one another are read as one. An archive that ends early gives its
whole rows, a message, and exit code 1.

Input is read once, in order, and never whole. A row longer than `max_row_bytes` becomes an error row without
being held. Parquet, CSV and other formats are refused by name, with a command that converts them.

A row that cannot run becomes an error row; its neighbours run. Strict JSON: NaN, Infinity, numbers beyond a
double and doubled keys are `bad_json`, with the column. A lone surrogate escape is replaced by U+FFFD and the
row carries a warning.

### Which row it is

| Key | Takes | Meaning |
| --- | --- | --- |
| `id`, `custom_id` | string or integer | Comes back byte for byte with the same type; 7 and "7" are two ids. Both may be given if they agree. |
| `metadata` | any | Comes back byte for byte. |

A row without an id (or with null) gets `row-HASH-K`, made from the bytes of the row and how many equal rows
came before, not from its line number; the output says `"id_generated": true`. A second row with the same
id is an error row naming the first; `--on-duplicate keep` runs it, `first` leaves it out of the output.
With `--id-prefix file` the id that comes back is the text `FILE:ID`.

### What is asked

Exactly one of `prompt`, `prompt_token_ids` and `messages`.

| Key | Takes | Meaning |
| --- | --- | --- |
| `prompt` | string, or a list of token ids | Raw text: the model continues it. Gets one BOS if the model wants one. |
| `prompt_token_ids` | list of token ids | Sent as it is. |
| `messages` | list of `{role, content}` | Through the chat template. Roles: system, user, assistant, tool (developer counts as system). `content` is a string or a list of text parts. |
| `system` | string | For `messages` that have no system message of their own, and for `chat`; wins over the run's. |
| `chat` | true or false | Send `prompt` through the template as one user message. |
| `continue_final_message` | true or false | The last message is the assistant's and is continued. Without it such a row is an error. |
| `tools`, `tool_choice` | as in OpenAI's API | Handed to the template; `tool_choice` is `auto` or `none`. Forcing a call is refused. |
| `chat_template_kwargs` | object | Further names for the template. |

With `--prompt-field NAME` that column is the prompt (a string, or a list of messages); with `--template FILE`
a Jinja template over the row's columns makes it.

### What the text must fit

At most one of these; null is as if absent, and `response_format: {"type": "text"}` takes the run's constraint away. What is enforced
stands in [constraints](constraints.md).

| Key | Takes |
| --- | --- |
| `constraint` | object with one of `json_schema`, `regex`, `choice` (list of strings), `grammar` (and `grammar_syntax`: auto, gbnf, w3c, iso, lark), `json_object` (true) |
| `response_format` | OpenAI's: `{"type": "json_schema", "json_schema": {"schema": ...}}`, `{"type": "json_object"}` |
| `structured_outputs` | object with one of `json`, `regex`, `choice`, `grammar`, `json_object` |
| `so_args` | object with one of `json_schema`, `regex`, `ebnf` |

The `guided_*` keys of other tools are error rows that name their spelling here.

### Sampling

Over the run's settings; null means as if absent. A whole number may be written with a fraction of zero (3.0).
Bounds come from the settings of the same name; `stop` is text only and `stop_token_ids` numbers only.
"""

_ROWS_OPENAI: Final = """
### OpenAI batch lines

A row with `body` and `url` or `method` is an OpenAI batch line: `url` is `/v1/chat/completions` (with
`messages`) or `/v1/completions` (with `prompt`), `method` is POST, and all other keys above stand in `body`.
A `model` that is not the loaded one gets one warning (`--strict`: an error row). `stream`, `echo`, `suffix`,
`best_of` above 1 and the like are error rows.

### Unknown keys

A key that is nearly a known one, or the name another tool has for it, is an error row with a suggestion.
Any other unknown key gets one warning a run (`--strict`: an error row), and comes back with `--passthrough`.

"""

_OUTPUT: Final = """
## Output

One JSON object for each input row, on one line that ends in `\\n`. Always valid JSON: what has no number in
JSON is null, U+2028, U+2029 and U+0085 are written as escapes, and no lone surrogate is ever written.

With `--order input` (the default) rows come out in the order of the input; at most {max_open_rows:,} rows or
{max_open_mib} MiB are read ahead of the row that is written next. With `--order completion` they come out as
they finish.

A result row is a function of the input row, the settings, the model and the numerics (build, instruction
set, precision). It holds no times, counters or random ids: running again gives the same bytes.

| Key | When | Meaning |
| --- | --- | --- |
| `id` | always | As it came; null when the row could not be read. |
| `index` | always | 0-based place among the non-blank rows of all inputs. |
| `id_generated` | generated ids | true |
| `source` | several inputs | `{{"file", "line"}}` |
| `status` | always | `ok` or `error`: the one field to test. |
| `outputs` | always | List of samples, `n` of them. Empty for errors, except those of [constraints](../how-to/constrain.md): their texts stay. |
| `not_enforced` | `schema_best_effort` | JSON pointers of the schema's keywords that were only checked afterwards. |
| `prompt_logprobs` | when asked | One entry for each prompt token; the first is null. |
| `usage` | texts | `prompt_tokens` and `completion_tokens` (of all samples; an end-of-sequence or stop token is not counted). |
| `error` | errors | `code`, `message`, `field`, `line` (1-based, blank lines count), `retryable`. See [errors](errors.md). |
| `warnings` | always | List of `{{"code", "message"}}`. |
| `metadata` | given | As it came. |
| `columns` | `--passthrough` | Object of the columns asked for; `all` = all unknown keys. |
| `request_hash` | always | 16 hex digits over the row and the settings its parameters resolve with. |
| `settings` | always | 16 hex digits; `OUT.run.json` says what they stand for. |
| `timing` | `--timing` | `queue_s` to first admission, `ttft_s` to the first token, `decode_s` from there, `e2e_s` in all; also `usage.cached_tokens`. Such files differ from run to run. |

Each entry of `outputs`:

| Key | When | Meaning |
| --- | --- | --- |
| `text` | always | What was generated, cut exactly before the stop string (after it with `include_stop`). |
| `finish_reason` | always | `stop`, `length` (max_tokens), or `context` (the context is full). |
| `stop_reason` | always | The stop string, or the id of a stop token that was asked for; otherwise null. |
| `seed` | always | Effective seed: the row's own, or a hash of the run's seed and the id. Sample j is drawn from (seed, j). 63 bits: read it as an integer. |
| `token_ids` | `return_token_ids` | Ids of the text's tokens. |
| `parsed` | `json_schema`, `json_object` | The text's value, when the text is complete and was found valid. Keys, their order and the digits of numbers are those of the text; white space around tokens is left out. |
| `error` | errors of constraints | Code of what this output lacks. The others of the row are complete and valid. |
| `logprobs` | when asked | For each token `token_id`, `token`, `logprob`, `rank` and `top`: the model's own distribution, before temperature, penalties, bias and masks. |

`--output-format openai` writes OpenAI's batch output lines instead: `id`, `custom_id`, `response`
(`status_code`, `request_id`, `body`), `error`. Ids are hashes and `created` is 0. Errors have a `status_code`
of their own and never a completion in `body`. What such lines have no place for, but `--resume` needs, is in
`body.deepinfer`: `index`, `request_hash`, `settings`, `retryable` when true, `source` with several inputs, and
of rows with a constraint `not_enforced`, `validation_timeout`, and the `outputs` of error rows. `parsed` stands beside the text.
`--errors FILE` takes error rows out of the output, in either shape.

Warnings:

| Code | Meaning |
| --- | --- |
"""

_ERRORS_INTRO: Final = """# Errors

## Of a row

The list is closed. `retryable` is true when the same row may succeed if it is run again; validation errors
never do. The last column is the status code under `--output-format openai`.

| Code | Meaning | Status |
| --- | --- | --- |
"""

_ERRORS_RUN: Final = """
## Of a run

A run that cannot start or go on says so in one sentence on stderr, with a hint where there is advice, and
ends with an [exit code](cli.md). Rows written until then stay valid.
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sampling_table() -> Iterator[str]:
    yield "| Key | Takes |"
    yield "| --- | --- |"
    for name in fields.SAMPLING_FIELDS:
        yield f"| `{name}` | {_cell(PARAMS[name].accepts)} |"
    yield f"| `seed`, `seq_seed` | {SEED.accepts} |"


def rows_page() -> str:
    ignored = ", ".join(f"`{name}`" for name in sorted(fields.IGNORED_FIELDS))
    output = _OUTPUT.format(max_open_rows=MAX_OPEN_ROWS, max_open_mib=MAX_OPEN_BYTES >> 20)
    warnings = "".join(f"| `{code}` | {_cell(text)} |\n" for code, text in WARNING_CODES.items())
    table = "\n".join(_sampling_table()) + "\n"
    return f"{_ROWS_INTRO}\n{table}{_ROWS_OPENAI}These are known and change nothing: {ignored}.\n{output}{warnings}"


def errors_page() -> str:
    rows = "".join(
        f"| `{code}` | {_cell(text)} | {status_code(code)} |\n" for code, text in ERROR_CODES.items()
    )
    return _ERRORS_INTRO + rows + _ERRORS_RUN
