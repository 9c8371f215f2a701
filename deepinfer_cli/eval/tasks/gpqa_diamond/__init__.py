"""GPQA Diamond: 198 multiple-choice questions in the sciences. Gated."""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_cli.eval.scoring.types import Gold
from deepinfer_cli.eval.tasks.base import BadRecord, Task, id_field, multiple_choice, shuffled, text_field
from deepinfer_cli.eval.types import HubSource, Problem, Published, Question, Record

INSTRUCTION = (
    "Exactly one of these choices is right. Reason step by step, and end with a line of the form "
    '"Answer: X", where X is the letter of your choice.'
)
_CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


class GpqaDiamond(Task):
    name = "gpqa_diamond"
    title = "GPQA Diamond"
    hub = HubSource("Idavidrein/gpqa", split="gpqa_diamond", config="gpqa_diamond", is_gated=True)
    num_samples = 8
    num_records = 198
    published = (
        Published(
            model="deepseek-v4.1-flash",
            label="DeepSeek-V4.1-Flash",
            score=0.909,
            source="its model card",
            settings="reasoning effort 100, temperature 1.0, top_p 0.95",
            caution="close to the ceiling of this set, so a point more or less says little",
        ),
    )

    def problem(self, record: Record, number: int) -> Problem:
        choices = tuple(text_field(record, name).strip() for name in _CHOICES)
        if len(set(choices)) < len(choices):
            raise BadRecord("two of its choices are equal")
        return Problem(
            id_field(record, "Record ID"),
            text_field(record, "Question").strip(),
            Gold("A", num_choices=len(choices)),
            "choice",
            category=record.get("High-level domain") or None,
            choices=choices,
        )

    def question(self, problem: Problem, sample: int, shuffle_seed: int) -> Question:
        permutation = shuffled(len(problem.choices), shuffle_seed, problem.id, sample)
        return multiple_choice(problem, sample, permutation, INSTRUCTION)

    def vote(self, extracted: str | None, permutation: Sequence[int]) -> str | None:
        place = -1 if extracted is None or len(extracted) != 1 else ord(extracted) - ord("A")
        return f"choice {permutation[place]}" if 0 <= place < len(permutation) else extracted


TASK = GpqaDiamond
