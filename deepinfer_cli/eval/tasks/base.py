"""What a task is: how a record becomes a problem, how it is asked, and what is known about its scores."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from deepinfer_cli.errors import InputError
from deepinfer_cli.eval.scoring.score import JUDGE_SCORER, SCORERS, check_gold
from deepinfer_cli.eval.scoring.types import Gold
from deepinfer_cli.eval.types import DataSet, HubSource, Problem, Published, Question, Record

_MAX_NAMED = 5  # bad records named in one message


class BadRecord(ValueError):
    """This record is not what the task expects; the message names field and found value."""


class Task:
    """Base of all tasks. A subclass sets the class variables and implements problem()."""

    name: ClassVar[str]
    title: ClassVar[str]
    hub: ClassVar[HubSource | None] = None
    num_samples: ClassVar[int] = 1  # per problem, unless -n says otherwise
    num_records: ClassVar[int | None] = None  # in the published set; another count is warned about
    needs_data: ClassVar[str | None] = (
        None  # why --data must be given, for tasks with neither hub nor own data
    )
    settings: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # of this task, unless the user set them
    caution: ClassVar[str | None] = None  # what to know before comparing scores
    published: ClassVar[tuple[Published, ...]] = ()
    own_data: ClassVar[Path | None] = None  # a file that is part of the program

    def __init__(self, *, scorer: str | None = None) -> None:
        if scorer is not None and scorer not in SCORERS and scorer != JUDGE_SCORER:
            raise InputError(f"unknown scorer {scorer!r}", f"one of {', '.join((*SCORERS, JUDGE_SCORER))}")
        self.scorer = scorer

    def problem(self, record: Record, number: int) -> Problem | str:
        """The problem in `record` (the number-th, from 1), or the reason why it is left out.

        Raises BadRecord for a record that does not have the expected form.
        """
        raise BadRecord(f"task {self.name} reads no records")

    def question(self, problem: Problem, sample: int, shuffle_seed: int) -> Question:
        """The problem as sample number `sample` is asked it."""
        messages = problem.messages or ({"role": "user", "content": problem.prompt},)
        return Question(problem, sample, messages, problem.gold)

    def vote(self, extracted: str | None, permutation: Sequence[int]) -> str | None:
        """What a sample votes for in the majority, whatever the order in which it saw the choices."""
        return extracted

    def build(self, records: Iterable[Record], origin: Mapping[str, Any]) -> DataSet:
        """All problems. InputError names the records that are wrong, doubled or unanswerable."""
        problems: dict[str, Problem] = {}
        first_seen: dict[str, int] = {}
        left_out: dict[str, int] = {}
        bad: list[str] = []
        number = 0
        for number, record in enumerate(records, 1):
            try:
                problem = self.problem(record, number)
                if isinstance(problem, str):
                    left_out[problem] = left_out.get(problem, 0) + 1
                    continue
                if problem.id in problems:
                    raise BadRecord(f"id {problem.id!r} was already in record {first_seen[problem.id]}")
                if problem.scorer != JUDGE_SCORER:
                    check_gold(problem.scorer, problem.gold)
            except ValueError as error:
                bad.append(f"record {number}: {error}")
                continue
            problems[problem.id] = problem
            first_seen[problem.id] = number
        self._refuse(bad, number, bool(problems))
        return DataSet(
            tuple(problems.values()), origin, number, left_out, self._count_warning(number, origin)
        )

    def _refuse(self, bad: Sequence[str], num_records: int, has_problems: bool) -> None:
        if bad:
            more = f"; and {len(bad) - _MAX_NAMED:,} more" if len(bad) > _MAX_NAMED else ""
            shown = "; ".join(bad[:_MAX_NAMED])
            raise InputError(
                f"{len(bad):,} of {num_records:,} records do not fit task {self.name}: {shown}{more}",
                f"docs/reference/eval.md says what {self.name} expects in each record",
            )
        if not has_problems:
            raise InputError(
                f"no problems for task {self.name}: the data has {num_records:,} usable records or none"
            )

    def _count_warning(self, num_records: int, origin: Mapping[str, Any]) -> tuple[str, ...]:
        if self.num_records is None or num_records == self.num_records:
            return ()
        return (
            f"{origin.get('name', self.name)} has {num_records:,} records, not {self.num_records:,}: "
            "its scores do not compare with published ones",
        )


# ---- reading fields ----------------------------------------------------------------------------------------


def text_field(record: Record, name: str) -> str:
    value = record.get(name)
    if isinstance(value, str) and value.strip():
        return value
    raise BadRecord(_complaint(record, name, "a text"))


def integer_field(record: Record, name: str) -> int:
    """An integer, also written as a string of digits (CSV knows nothing else)."""
    from deepinfer_cli.eval.scoring.integer import gold_integer

    value = record.get(name)
    try:
        return gold_integer(value)
    except ValueError:
        raise BadRecord(_complaint(record, name, "an integer")) from None


def id_field(record: Record, name: str) -> str:
    value = record.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text_field(record, name)


def _complaint(record: Record, name: str, wanted: str) -> str:
    if name not in record:
        shown = ", ".join(list(record)[:12]) or "none"
        return f"no column {name!r} (columns: {shown})"
    found = repr(record[name])
    return f"{name} is not {wanted}: {found[:60]}{'...' if len(found) > 60 else ''}"


def shuffled(num_choices: int, *key: object) -> tuple[int, ...]:
    """A permutation that depends on `key` alone, on every machine and version alike."""

    def rank(i: int) -> bytes:
        return hashlib.sha256("\x1f".join([*map(str, key), str(i)]).encode()).digest()

    return tuple(sorted(range(num_choices), key=rank))


def letter(i: int) -> str:
    return chr(ord("A") + i)


def multiple_choice(problem: Problem, sample: int, permutation: Sequence[int], instruction: str) -> Question:
    """`problem` with its choices in this order, lettered from A."""
    lines = [f"{letter(i)}) {problem.choices[place]}" for i, place in enumerate(permutation)]
    content = f"{problem.prompt}\n\n" + "\n".join(lines) + f"\n\n{instruction}"
    gold = Gold(letter(list(permutation).index(0)), num_choices=len(permutation))
    return Question(problem, sample, ({"role": "user", "content": content},), gold, tuple(permutation))
