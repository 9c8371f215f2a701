"""MATH-500: competition problems whose answers are expressions."""

from __future__ import annotations

from deepinfer_cli.eval.scoring.types import Gold
from deepinfer_cli.eval.tasks.base import Task, id_field, text_field
from deepinfer_cli.eval.types import Problem, Record

INSTRUCTION = "Reason step by step, and write your final answer in \\boxed{}."


class Math500(Task):
    name = "math500"
    title = "MATH-500"
    num_records = 500
    needs_data = "a file with the columns problem and answer"

    def problem(self, record: Record, number: int) -> Problem:
        problem_id = id_field(record, "unique_id") if "unique_id" in record else str(number)
        prompt = f"{text_field(record, 'problem').strip()}\n\n{INSTRUCTION}"
        return Problem(problem_id, prompt, Gold(text_field(record, "answer")), "math", record.get("subject"))


TASK = Math500
