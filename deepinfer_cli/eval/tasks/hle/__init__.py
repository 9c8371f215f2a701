"""Humanity's Last Exam, its text-only questions. Multiple choice by rule, exact match by a judge. Gated."""

from __future__ import annotations

from deepinfer_cli.eval.scoring.score import JUDGE_SCORER
from deepinfer_cli.eval.scoring.types import Gold
from deepinfer_cli.eval.tasks.base import BadRecord, Task, id_field, text_field
from deepinfer_cli.eval.types import HubSource, Problem, Published, Record

CHOICE_INSTRUCTION = (
    'Reason step by step, and end with a line of the form "Answer: X", where X is the letter of your choice.'
)
EXACT_INSTRUCTION = (
    'Reason step by step, and end with a line of the form "Answer: ..." that holds your final answer.'
)


class Hle(Task):
    name = "hle"
    title = "Humanity's Last Exam (text only)"
    hub = HubSource("cais/hle", split="test", is_gated=True)
    num_samples = 1
    num_records = 2500
    published = (
        Published(
            model="deepseek-v4.1-flash",
            label="DeepSeek-V4.1-Flash, text-only questions",
            score=0.391,
            source="its model card",
            settings="reasoning effort 100, temperature 1.0, top_p 0.95",
        ),
        Published(
            model="deepseek-v4.1-flash",
            label="DeepSeek-V4.1-Flash, all questions",
            score=0.368,
            source="its model card",
            settings="reasoning effort 100, temperature 1.0, top_p 0.95; with images",
            caution="not comparable with text-only scores",
        ),
    )

    def problem(self, record: Record, number: int) -> Problem | str:
        question = text_field(record, "question").strip()
        answer = text_field(record, "answer").strip()
        kind = text_field(record, "answer_type")
        if "image" not in record:
            raise BadRecord(f"no column 'image' (columns: {', '.join(list(record)[:12])})")
        if record["image"]:
            return "has an image"
        category = record.get("category") or None
        if kind == "multipleChoice":
            prompt = f"{question}\n\n{CHOICE_INSTRUCTION}"
            gold = Gold(answer.rstrip(".").upper(), num_choices=26)
            return Problem(id_field(record, "id"), prompt, gold, "choice", category)
        if kind == "exactMatch":
            prompt = f"{question}\n\n{EXACT_INSTRUCTION}"
            return Problem(id_field(record, "id"), prompt, Gold(answer), JUDGE_SCORER, category)
        raise BadRecord(f"answer_type is neither multipleChoice nor exactMatch: {kind!r}")


TASK = Hle
