"""What a judge is asked, and the only form in which its answer counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deepinfer_cli.eval.scoring.json_answer import parse_strict, schema_error
from deepinfer_cli.eval.scoring.reasoning import strip_reasoning

MAX_RESPONSE_CHARS: Final = 20_000  # of the judged answer; its end is what states the result

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "extracted": {"type": ["string", "null"]},
        "reason": {"type": "string"},
        "correct": {"type": "boolean"},
    },
    "required": ["extracted", "reason", "correct"],
    "additionalProperties": False,
}

_INSTRUCTION: Final = """\
Decide whether a response gives the right final answer to a question.

Question:
{question}

Response:
{response}

Right answer:
{gold}

Compare the final answer of the response with the right answer, and nothing else: do not solve the question
yourself and do not argue for another answer. Differences in wording or format, and small rounding differences
in numbers, do not matter. A response without a final answer, or with several, is not correct.

Write one JSON object and nothing else, with these keys:
"extracted": the final answer that the response gives, or null if it gives none;
"reason": one sentence on how the two compare;
"correct": true or false."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge said about one sample; `error` is set when it said nothing that counts."""

    by: str
    verdict: str | None = None  # "correct" or "wrong"
    extracted: str | None = None
    reason: str | None = None
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "verdict": self.verdict,
            "extracted": self.extracted,
            "reason": self.reason,
            "error": self.error,
        }


def judge_messages(sample: Mapping[str, Any]) -> list[dict[str, str]]:
    question = "\n\n".join(str(m.get("content")) for m in sample["messages"] if m.get("role") == "user")
    response = strip_reasoning(sample["output"] or "").strip()
    if len(response) > MAX_RESPONSE_CHARS:
        response = f"[...]\n{response[-MAX_RESPONSE_CHARS:]}"
    content = _INSTRUCTION.format(question=question, response=response, gold=sample["gold"])
    return [{"role": "user", "content": content}]


def read_judgement(text: str, by: str) -> Judgement:
    """The judgement in a judge's answer; an error that names what was wrong with it otherwise."""
    plain = strip_reasoning(text).strip()
    start, end = plain.find("{"), plain.rfind("}")
    if start < 0 or end < start:
        return Judgement(by, error="the judge wrote no JSON object")
    try:
        value = parse_strict(plain[start : end + 1])
    except (ValueError, RecursionError) as error:
        return Judgement(by, error=f"the judge wrote no valid JSON: {error}")
    if (broken := schema_error(value, SCHEMA)) is not None:
        return Judgement(by, error=f"the judge answered out of schema at {broken}")
    verdict = "correct" if value["correct"] else "wrong"
    return Judgement(by, verdict, value["extracted"], value["reason"])
