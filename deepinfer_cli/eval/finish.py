"""After the last sample: second opinion, judge, order, summary, page; and `--rescore`, without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from deepinfer_cli.console import Console
from deepinfer_cli.errors import InputError, UsageError
from deepinfer_cli.eval.identity import Identity, read_identity, write_identity
from deepinfer_cli.eval.judge.prompt import Judgement
from deepinfer_cli.eval.samples import (
    SAMPLES,
    Sample,
    SamplesFile,
    merged,
    read_samples,
    rescored,
    with_judgement,
    write_samples,
)
from deepinfer_cli.eval.scoring import second_opinion
from deepinfer_cli.eval.show import table
from deepinfer_cli.eval.summary import summarise
from deepinfer_cli.eval.tasks.base import Task
from deepinfer_cli.eval.tasks.registry import load_task
from deepinfer_cli.results.durable import replace_text

SUMMARY, PARTIAL_SUMMARY, REPORT = "summary.json", "summary.partial.json", "report.html"
OpinionMode = Literal["auto", "on", "off"]


class Judge(Protocol):
    batch_size: ClassVar[int]  # samples that are judged before their judgements are stored

    def describe(self) -> dict[str, Any]: ...
    def judge(self, samples: Sequence[Sample]) -> list[Judgement]: ...


@dataclass(frozen=True, slots=True)
class Finish:
    """What happens once samples are there."""

    folder: Path
    console: Console
    opinion: OpinionMode = "auto"
    judge: Judge | None = None

    def run(self, task: Task) -> dict[str, Any]:
        """Writes everything; the summary."""
        identity = read_identity(self.folder)
        samples = merged(read_samples(self.folder / SAMPLES), identity["problem_order"])
        return self._finish(task, identity, samples)

    def rescore(self) -> tuple[dict[str, Any], int]:
        """Decides every verdict anew; (summary, samples whose verdict changed)."""
        identity = read_identity(self.folder)
        task = load_task(identity["task"])()
        before = merged(read_samples(self.folder / SAMPLES), identity["problem_order"])
        if not before:
            raise InputError(f"{self.folder} holds no samples", "run the evaluation first")
        samples = [with_judgement(rescored(sample, task)) for sample in before]
        num_changed = sum(a["verdict"] != b["verdict"] for a, b in zip(before, samples, strict=True))
        return self._finish(task, identity, samples), num_changed

    def _finish(self, task: Task, identity: Identity, samples: list[Sample]) -> dict[str, Any]:
        samples = self._second_opinion(samples)
        identity, samples = self._judged(identity, samples)
        write_samples(self.folder / SAMPLES, samples)
        summary = summarise(samples, identity)
        self._write(task, summary, samples)
        return summary

    def _write(self, task: Task, summary: dict[str, Any], samples: list[Sample]) -> None:
        name, other = (PARTIAL_SUMMARY, SUMMARY) if summary["partial"] else (SUMMARY, PARTIAL_SUMMARY)
        replace_text(self.folder / name, json.dumps(summary, ensure_ascii=False, indent=1) + "\n")
        (self.folder / other).unlink(missing_ok=True)
        from deepinfer_cli.report.samples_page import samples_page

        model = (summary.get("model") or {}).get("name") or "unknown model"
        title = f"{summary['identity']['title']}: {model}"
        lines = table(summary, task.published)
        replace_text(self.folder / REPORT, samples_page(title, lines, summary, samples))

    # ---- second opinion ------------------------------------------------------------------------------------

    def _second_opinion(self, samples: list[Sample]) -> list[Sample]:
        wanted = [
            i
            for i, s in enumerate(samples)
            if s["scorer"] in second_opinion.SCORERS_WITH_OPINION
            and s["verdict"] != "error"
            and "second" not in s
        ]
        if not wanted or self.opinion == "off":
            return samples
        if not second_opinion.is_available():
            hint = "pip install 'deepinfer-cli[eval]'"
            if self.opinion == "on":
                raise UsageError("--second-opinion on needs math-verify, which is not installed", hint)
            self.console.info(f"no second opinion on the answers: math-verify is not installed ({hint})")
            return samples
        jobs = [(samples[i]["output"], str(samples[i]["gold"])) for i in wanted]
        by = second_opinion.library_name()
        for i, opinion in zip(wanted, second_opinion.second_opinions(jobs), strict=True):
            second = {"by": by, "is_correct": opinion.is_correct, "error": opinion.error}
            samples[i] = {**samples[i], "second": second}
        return samples

    # ---- judge ---------------------------------------------------------------------------------------------

    def _judged(self, identity: Identity, samples: list[Sample]) -> tuple[Identity, list[Sample]]:
        wanted = [i for i, s in enumerate(samples) if s["verdict"] == "unjudged"]
        if self.judge is None or not wanted:
            return identity, samples
        who = self.judge.describe()
        earlier = identity.get("judge")
        if earlier and earlier.get("model") != who["model"] and any(s.get("judge") for s in samples):
            raise UsageError(
                f"some samples were judged by {earlier.get('model')}, the rest would be by {who['model']}",
                "use the same judge",
            )
        self.console.info(f"{len(wanted):,} samples go to the judge, {who['model']}")
        identity = {**identity, "judge": who}
        write_identity(self.folder, identity)
        self._judge_all(self.judge, samples, wanted)
        return identity, samples

    def _judge_all(self, judge: Judge, samples: list[Sample], wanted: Sequence[int]) -> None:
        """Replaces the wanted samples. Judgements are on the disk batch by batch: asking may take hours."""
        file = SamplesFile(self.folder / SAMPLES)
        try:
            for start in range(0, len(wanted), judge.batch_size):
                batch = wanted[start : start + judge.batch_size]
                judgements = judge.judge([samples[i] for i in batch])
                for i, judgement in zip(batch, judgements, strict=True):
                    samples[i] = with_judgement({**samples[i], "judge": judgement.as_json()})
                    file.append(samples[i])
                if len(wanted) > judge.batch_size:
                    self.console.info(f"judged {start + len(batch):,} of {len(wanted):,}")
        finally:
            file.close()
