"""Plain data between the stages of an evaluation: records -> problems -> questions -> samples -> summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deepinfer_cli.eval.scoring.types import Gold

Record = Mapping[str, Any]  # one line of a data set, as its publisher wrote it


@dataclass(frozen=True, slots=True)
class HubSource:
    """Where a data set is published."""

    repo: str  # "owner/name" of the data set
    split: str  # as it occurs in file names
    config: str | None = None
    is_gated: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """A score that somebody published, shown beside ours. Nothing here is estimated or remembered."""

    model: str  # name prefix that our model's name or source is matched with, lower case
    label: str  # as shown
    score: float  # 0..1
    source: str
    settings: str
    caution: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with what is right. `gold` never goes into a row."""

    id: str  # unique in its task
    prompt: str  # of one user message, unless `messages` is given
    gold: Gold
    scorer: str
    category: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    choices: tuple[str, ...] = ()  # multiple choice that is shuffled per sample; the first one is right
    row: Mapping[str, Any] = field(default_factory=dict)  # further fields of the row, such as response_format


@dataclass(frozen=True, slots=True)
class Question:
    """A problem as one sample is asked it."""

    problem: Problem
    sample: int  # 0-based
    messages: tuple[Mapping[str, Any], ...]
    gold: Gold
    permutation: tuple[int, ...] = ()  # place of each shown choice in Problem.choices

    @property
    def key(self) -> str:
        """The row's id, and so what its seed derives from."""
        return f"{self.problem.id}#{self.sample}"


@dataclass(frozen=True, slots=True)
class DataSet:
    """A task's problems, and where exactly they came from."""

    problems: tuple[Problem, ...]
    origin: Mapping[str, Any]  # repo, commit, files or path; sha256 over the bytes read
    num_records: int  # in the files, before any were left out
    left_out: Mapping[str, int] = field(default_factory=dict)  # reason -> records
    warnings: tuple[str, ...] = ()
