"""Grade-school word problems (GSM8K, test part): the number behind `####` is right."""

from __future__ import annotations

from deepinfer_cli.eval.scoring.types import Gold
from deepinfer_cli.eval.tasks.base import BadRecord, Task, text_field
from deepinfer_cli.eval.types import Problem, Record

INSTRUCTION = "Reason step by step, and write your final answer as a number in \\boxed{}."


class Gsm8k(Task):
    name = "gsm8k"
    title = "GSM8K"
    num_records = 1319
    caution = "saturated, and known to be in training data"
    needs_data = "a file with the columns question and answer"

    def problem(self, record: Record, number: int) -> Problem:
        prompt = f"{text_field(record, 'question').strip()}\n\n{INSTRUCTION}"
        _, mark, answer = text_field(record, "answer").rpartition("####")
        if not mark:
            raise BadRecord("answer has no '####' in front of the number")
        return Problem(str(number), prompt, Gold(answer.strip()), "number")


TASK = Gsm8k
