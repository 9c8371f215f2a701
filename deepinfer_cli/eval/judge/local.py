"""The evaluated model, or another local one, as its own judge. Results are marked self-judged everywhere."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.eval.judge.prompt import Judgement, judge_messages, read_judgement
from deepinfer_cli.progress import Progress

NAME: Final = "local"
MAX_TOKENS: Final = 4096


@dataclass(frozen=True, slots=True)
class LocalJudge:
    batch_size: ClassVar[int] = 1 << 30  # all in one run: each run loads the model

    config: RunConfig
    console: Console
    folder: Path
    model: str

    def describe(self) -> dict[str, Any]:
        return {"url": NAME, "model": self.model, "self_judged": True}

    def judge(self, samples: Sequence[Mapping[str, Any]]) -> list[Judgement]:
        from deepinfer_cli.engine import batch_run

        rows = self.folder / "judge_rows.jsonl"
        with rows.open("w", encoding="utf-8") as file:
            for sample in samples:
                row = {"id": sample["key"], "messages": judge_messages(sample)}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        config = dataclasses.replace(self.config, inputs=(str(rows),))
        settings = {"temperature": 0.0, "max_tokens": MAX_TOKENS, "n": 1}
        sink = _Answers(self.model)
        try:
            batch_run.run(config.with_values(settings, Origin("default", "judge")), self.console, sink)
        finally:
            rows.unlink(missing_ok=True)
        missing = Judgement(self.model, error="the judge's row was not run")
        return [sink.judgements.get(sample["key"], missing) for sample in samples]


@dataclass(slots=True)
class _Answers:
    """Collects judgements from result rows (results/sink.py)."""

    model: str
    name: str = "judgements"
    num_rows: int = 0
    is_pipe: bool = False
    fd: int = -1
    judgements: dict[str, Judgement] = field(default_factory=dict)

    def start(self, config: RunConfig, manifest: Mapping[str, Any], progress: Progress) -> None:
        progress.unit = "judgements"

    def write(self, line: str) -> None:
        result = json.loads(line)
        self.num_rows += 1
        if result["status"] != "ok":
            judgement = Judgement(self.model, error=f"the judge's row failed: {result['error']['message']}")
        else:
            judgement = read_judgement(result["outputs"][0]["text"], self.model)
        self.judgements[result["id"]] = judgement

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""
