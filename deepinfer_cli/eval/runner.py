"""Asks the questions that have no sample yet, through the same loop as `deepinfer run`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.errors import InternalError
from deepinfer_cli.eval import identity as identities
from deepinfer_cli.eval.protocol import Protocol
from deepinfer_cli.eval.samples import SAMPLES, SamplesFile, new_sample, read_samples
from deepinfer_cli.eval.tasks.base import Task
from deepinfer_cli.eval.types import DataSet, Problem, Question
from deepinfer_cli.progress import Progress

ROWS = "rows.jsonl"  # what is still to be asked, while it is asked
RUN_FILE = "run.json"


@dataclass(frozen=True, slots=True)
class EvalPlan:
    """One evaluation, decided."""

    task: Task
    data: DataSet
    problems: tuple[Problem, ...]  # those that --limit leaves
    protocol: Protocol
    config: RunConfig
    folder: Path
    limit: int | None
    judge: Mapping[str, Any] | None = None  # who judges, for eval.json

    def questions(self) -> list[Question]:
        """Sample 0 of all problems, then sample 1 and so on: an early score covers all of them."""
        return [
            self.task.question(problem, sample, self.protocol.shuffle_seed)
            for sample in range(self.protocol.num_samples)
            for problem in self.problems
        ]


def row_of(question: Question, protocol: Protocol) -> dict[str, Any]:
    """The input row. It holds nothing of the gold answer."""
    row: dict[str, Any] = {
        "id": question.key,
        "messages": list(question.messages),
        **question.problem.row,
    }
    kwargs = {**protocol.template_kwargs, **(row.get("chat_template_kwargs") or {})}
    if kwargs:
        row["chat_template_kwargs"] = kwargs
    return row


def ask(plan: EvalPlan, console: Console) -> int:
    """Runs what is missing; the run's exit code. Samples are in the folder's samples.jsonl afterwards."""
    from deepinfer_cli.engine import batch_run

    path = plan.folder / SAMPLES
    done = {s["key"] for s in read_samples(path, repair=True) if s["verdict"] != "error"}
    missing = [q for q in plan.questions() if q.key not in done]
    if done:
        console.info(f"{len(done):,} samples are there already, {len(missing):,} to go")
    if not missing:
        return 0
    rows = plan.folder / ROWS
    with rows.open("w", encoding="utf-8") as file:
        for question in missing:
            file.write(json.dumps(row_of(question, plan.protocol), ensure_ascii=False) + "\n")
    sink = SampleSink(plan, console, missing)
    config = dataclasses.replace(plan.config, inputs=(str(rows),))
    config = config.with_values({"run_file": str(plan.folder / RUN_FILE)}, Origin("default", "eval"))
    try:
        code = batch_run.run(config, console, sink)
    finally:
        sink.close()
        rows.unlink(missing_ok=True)
    return code


@dataclass(slots=True)
class SampleSink:
    """Takes result rows (results/sink.py), scores each at once and appends it to samples.jsonl."""

    plan: EvalPlan
    console: Console
    questions: Sequence[Question]
    name: str = "samples"
    num_rows: int = 0
    is_pipe: bool = False
    fd: int = -1
    _by_key: dict[str, Question] = field(default_factory=dict)
    _file: SamplesFile | None = None
    _progress: Progress | None = None
    _num_correct: int = 0

    def start(self, config: RunConfig, manifest: Mapping[str, Any], progress: Progress) -> None:
        """Says and stores what is going to be asked; refuses to mix it with what was asked before."""
        plan = self.plan
        now = identities.describe(
            plan.task,
            plan.data,
            plan.protocol,
            config,
            manifest,
            num_problems=len(plan.problems),
            limit=plan.limit,
        )
        now["judge"] = None if plan.judge is None else dict(plan.judge)
        if (plan.folder / identities.IDENTITY).exists():
            earlier = identities.read_identity(plan.folder)
            identities.refuse_changes(earlier, now)
            now["judge"] = now["judge"] or earlier.get("judge")  # whose judgements are there already
        identities.write_identity(plan.folder, now)
        self._write_config(config)
        self._by_key = {q.key: q for q in self.questions}
        self._file = SamplesFile(plan.folder / SAMPLES)
        self._progress = progress
        progress.unit = "samples"
        progress.total = len(self.questions)
        self._say(config, now)

    def _write_config(self, config: RunConfig) -> None:
        from deepinfer_cli.config.layers import print_config
        from deepinfer_cli.results.durable import replace_text

        plan = self.plan
        head = f"# deepinfer eval {plan.task.name}; -n {plan.protocol.num_samples}, "
        head += f"--shuffle-seed {plan.protocol.shuffle_seed}; eval.json says the rest\n"
        again = {"run_file": None, "n": plan.protocol.num_samples}  # so that -c config.yaml asks the same
        own = config.with_values(again, Origin("default", "eval"))
        replace_text(plan.folder / "config.yaml", head + print_config(own) + "\n")

    def _say(self, config: RunConfig, now: Mapping[str, Any]) -> None:
        info, plan, data = self.console.info, self.plan, now["data"]
        where = data["name"] + (f" at {data['commit'][:12]}" if data.get("commit") else "")
        shown = (
            f"{len(plan.problems):,} of {len(plan.data.problems):,}"
            if now["limit"]
            else f"{len(plan.problems):,}"
        )
        info(f"{plan.task.title}: {shown} problems x {plan.protocol.num_samples} samples, from {where}")
        info(f"data sha256 {data['sha256'][:16]}; template {(now['fingerprints'] or {}).get('template')}")
        s = config.sampling
        parts = [f"temperature {s.temperature:g}", f"top_p {s.top_p:g}", f"max_tokens {s.max_tokens:,}"]
        parts += [f"{k} {v}" for k, v in plan.protocol.template_kwargs.items()]
        info(f"settings ({plan.protocol.source}): {', '.join(parts)}, run seed {s.seed}")
        for reason, count in plan.data.left_out.items():
            info(f"left out: {count:,} x {reason}")
        first = plan.task.question(plan.problems[0], 0, plan.protocol.shuffle_seed)
        self.console.debug(
            f"problem {first.problem.id} as asked: {json.dumps(first.messages, ensure_ascii=False)}"
        )

    def write(self, line: str) -> None:
        result = json.loads(line)
        question = self._by_key.get(result["id"])
        if question is None or self._file is None:
            raise InternalError(f"a result for a row that was never asked: {result.get('id')!r}")
        sample = new_sample(question, result, self.plan.task)
        self._file.append(sample)
        self.num_rows += 1
        self._num_correct += sample["verdict"] == "correct"
        if self._progress is not None:
            share = 100 * self._num_correct / self.num_rows
            self._progress.note = f"score so far {share:.1f} %"

    def flush(self) -> None:
        """Every line is with the system already."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
