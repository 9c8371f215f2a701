"""samples.jsonl: one line per problem and sample, appended as they finish, put in order at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deepinfer_cli.errors import InputError, OutputError
from deepinfer_cli.eval.scoring.score import score_output
from deepinfer_cli.eval.scoring.types import SCORER_VERSION, Gold, Scored
from deepinfer_cli.eval.tasks.base import Task
from deepinfer_cli.eval.types import Question
from deepinfer_cli.results.durable import replace_text
from deepinfer_cli.results.lines import BadRecord, Records
from deepinfer_cli.results.lines import repair as mend

SAMPLES = "samples.jsonl"
Sample = dict[str, Any]


def new_sample(question: Question, result: Mapping[str, Any], task: Task) -> Sample:
    """The line of one finished row: what was asked, said, extracted and decided."""
    outputs = result.get("outputs") or [{}]
    output = outputs[0]
    sample: Sample = {
        "key": question.key,
        "problem": question.problem.id,
        "sample": question.sample,
        "category": question.problem.category,
        "scorer": question.problem.scorer,
        "seed": output.get("seed"),
        "messages": list(question.messages),
        "permutation": list(question.permutation),
        "gold": question.gold.answer,
        "gold_schema": question.gold.schema,
        "num_choices": question.gold.num_choices,
        "output": output.get("text"),
        "reasoning": output.get("reasoning"),
        "finish_reason": output.get("finish_reason"),
        "usage": result.get("usage"),
        "error": result.get("error"),
    }
    return rescored(sample, task)


_TRUNCATED = "constraint_truncated"


def rescored(sample: Mapping[str, Any], task: Task) -> Sample:
    """`sample` with its verdict decided anew from what it holds; no model is needed."""
    error = sample.get("error")
    if isinstance(error, dict) and error.get("code") == _TRUNCATED and sample.get("output") is not None:
        error = None  # the text is there, and short of a whole answer as any other that was cut
    if error is not None or sample.get("output") is None:
        message = (sample.get("error") or {}).get("message", "no output")
        scored = Scored("error", note=str(message))
    else:
        gold = Gold(sample["gold"], sample.get("gold_schema"), sample.get("num_choices") or 0)
        scored = score_output(sample["scorer"], sample["output"], _cut_reason(sample), gold)
    fresh = dict(sample)
    fresh.update(
        verdict=scored.verdict,
        extracted=scored.extracted,
        span=None if scored.span is None else list(scored.span),
        note=scored.note,
        vote=task.vote(scored.extracted, sample.get("permutation") or ()),
        scorer_version=SCORER_VERSION,
    )
    return fresh


def with_judgement(sample: Sample) -> Sample:
    """The stored judgement, if there is a valid one, turned into the verdict."""
    judge = sample.get("judge")
    if sample["verdict"] != "unjudged" or judge is None:
        return sample
    if judge.get("error"):
        return {**sample, "note": f"not judged: {judge['error']}"}
    return {
        **sample,
        "verdict": judge["verdict"],
        "vote": judge.get("extracted"),
        "note": judge.get("reason"),
    }


def _cut_reason(sample: Mapping[str, Any]) -> str:
    """The finish reason, but "length" also where the context ended the output: it was cut all the same."""
    reason = str(sample.get("finish_reason"))
    return "length" if reason == "context" else reason


class SamplesFile:
    """Append-only writer. Every line goes to the system whole: a killed run loses none but its last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from None

    def append(self, sample: Sample) -> None:
        data = _line(sample).encode()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}") from None

    def close(self) -> None:
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1


def _line(sample: Sample) -> str:
    text = json.dumps(sample, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "replace").decode()


def _parse_sample(line: bytes) -> Sample:
    try:
        sample: Sample = json.loads(line)
        _ = sample["key"], sample["problem"], sample["verdict"], sample["scorer"]
    except (ValueError, KeyError, TypeError):
        raise BadRecord("was this file written by deepinfer eval?") from None
    return sample


def read_samples(path: Path, *, repair: bool = False) -> list[Sample]:
    """All samples. What a crash left behind the last of them is not read, and with `repair` cut off."""
    samples = []
    try:
        with path.open("rb") as file:
            records = Records(file, str(path), _parse_sample, start=b'{"key"', what="a sample")
            while (sample := records.head) is not None:
                samples.append(sample)
                records.advance()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if repair and records.has_gap:
        write_samples(path, samples)
    elif repair:
        mend(path, records)
    return samples


def merged(samples: Iterable[Sample], order: Sequence[str]) -> list[Sample]:
    """The last line of each key, by problem in `order` and then by sample; errors give way to any result."""
    place = {problem: i for i, problem in enumerate(order)}
    latest: dict[str, Sample] = {}
    for sample in samples:
        earlier = latest.get(sample["key"])
        if earlier is None or sample["verdict"] != "error" or earlier["verdict"] == "error":
            latest[sample["key"]] = sample
    last = len(place)
    return sorted(latest.values(), key=lambda s: (place.get(s["problem"], last), s["problem"], s["sample"]))


def write_samples(path: Path, samples: Iterable[Sample]) -> None:
    replace_text(path, "".join(map(_line, samples)))
