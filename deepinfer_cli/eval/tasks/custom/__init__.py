"""Your own problems: rows as `deepinfer run` reads them, with an answer and a scorer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from deepinfer_cli.eval.scoring.score import JUDGE_SCORER, SCORERS
from deepinfer_cli.eval.scoring.types import Gold
from deepinfer_cli.eval.tasks.base import BadRecord, Task, id_field
from deepinfer_cli.eval.types import Problem, Record
from deepinfer_cli.requests.fields import KNOWN_FIELDS

# What this task reads itself. Nothing of it goes into a row.
_OWN = (
    "id",
    "task",
    "category",
    "prompt",
    "messages",
    "answer",
    "scorer",
    "schema",
    "thinking",
    "num_choices",
)
# A row answers once per sample and is named by its problem; the rest of its fields may be set.
_NOT_PASSED = frozenset(
    ("id", "custom_id", "n", "seed", "seq_seed", "prompt", "messages", "metadata", "model")
)


class Custom(Task):
    name = "custom"
    title = "custom problems"
    needs_data: ClassVar[str | None] = (
        "a file with prompt or messages, answer, and optionally scorer and schema in each record"
    )

    def problem(self, record: Record, number: int) -> Problem:
        scorer = (
            record.get("scorer") or self.scorer or ("json" if record.get("schema") is not None else "exact")
        )
        if scorer not in SCORERS and scorer != JUDGE_SCORER:
            raise BadRecord(f"scorer {scorer!r} is none of {', '.join((*SCORERS, JUDGE_SCORER))}")
        messages = self._messages(record)
        if record.get("answer") is None and scorer != "json":
            raise BadRecord("no answer")
        num_choices = record.get("num_choices", 26)
        if not isinstance(num_choices, int) or not 2 <= num_choices <= 26:
            raise BadRecord(f"num_choices is not from 2 to 26: {num_choices!r}")
        return Problem(
            id_field(record, "id") if record.get("id") is not None else str(number),
            "",
            Gold(record.get("answer"), record.get("schema"), num_choices),
            scorer,
            category=_category(record),
            messages=messages,
            row=_row_fields(record),
        )

    def _messages(self, record: Record) -> tuple[Mapping[str, Any], ...]:
        prompt, messages = record.get("prompt"), record.get("messages")
        if (prompt is None) == (messages is None):
            raise BadRecord("give one of prompt and messages")
        if prompt is not None:
            if not isinstance(prompt, str) or not prompt.strip():
                raise BadRecord("prompt is not a text")
            return ({"role": "user", "content": prompt},)
        if not isinstance(messages, list) or not messages:
            raise BadRecord("messages is not a list of messages")
        return tuple(messages)


def _category(record: Record) -> str | None:
    value = record.get("category") or record.get("task")
    if value is None:
        return None
    return f"{value}+think" if record.get("thinking") is True and "category" not in record else str(value)


def _row_fields(record: Record) -> dict[str, Any]:
    """Fields of the row that the record sets, such as max_tokens or response_format."""
    fields = {k: v for k, v in record.items() if k in KNOWN_FIELDS and k not in _NOT_PASSED and v is not None}
    unknown = sorted(k for k in record if k not in KNOWN_FIELDS and k not in _OWN)
    if unknown and (close := [k for k in unknown if k.lower() in _OWN]):
        raise BadRecord(f"unknown field {close[0]!r}; did you mean {close[0].lower()!r}?")
    if isinstance(fields.get("response_format"), str):
        fields["response_format"] = {"type": fields["response_format"]}
    if isinstance(record.get("thinking"), bool):
        kwargs = dict(fields.get("chat_template_kwargs") or {})
        kwargs.setdefault("thinking", record["thinking"])
        kwargs.setdefault("enable_thinking", record["thinking"])
        fields["chat_template_kwargs"] = kwargs
    return fields


TASK = Custom
