"""What the AIME tasks share: integer answers from 0 to 999 in a box."""

from __future__ import annotations

from deepinfer_cli.eval.scoring.types import Gold
from deepinfer_cli.eval.tasks.base import BadRecord, Task, integer_field, text_field
from deepinfer_cli.eval.types import Problem, Record

INSTRUCTION = (
    "The answer is an integer from 0 to 999. Reason step by step, and write your final answer in \\boxed{}."
)


class AimeTask(Task):
    num_samples = 16
    num_records = 30

    def problem(self, record: Record, number: int) -> Problem:
        problem_id = str(integer_field(record, "problem_idx"))
        answer = integer_field(record, "answer")
        if not 0 <= answer <= 999:
            raise BadRecord(f"answer {answer} is not from 0 to 999")
        prompt = f"{text_field(record, 'problem').strip()}\n\n{INSTRUCTION}"
        return Problem(problem_id, prompt, Gold(answer), "integer")
