"""What is known about one setting, and how it is declared on a dataclass field.

The declaration is the only source: YAML schema, command-line options, environment names, per-row parameter
checks and the reference page are all derived from it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Kind = Literal[
    "bool",
    "int",
    "float",
    "str",
    "choice",
    "path",
    "bytes",
    "strings",
    "integers",
    "bias",
    "shard",
    "failures",
    "constraint",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows whose index is `index` modulo `count`."""

    index: int  # 0-based
    count: int  # >= 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(frozen=True, slots=True)
class FailureLimit:
    """How many rows may fail before the run is given up: a count, or a share of the rows seen so far."""

    count: int | None  # exactly one of the two is set
    share: float | None  # 0.05 for "5%"

    def __str__(self) -> str:
        return str(self.count) if self.share is None else f"{self.share * 100:g}%"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the settings table."""

    key: str  # YAML key, `--set` name and attribute name
    group: str  # attribute of RunConfig that holds it: model, engine, sampling, rows, output
    kind: Kind
    nullable: bool
    default: Any
    help: str  # one sentence without a full stop, shown by --help and the reference page
    minimum: float | int | None = None
    maximum: float | int | None = None
    exclusive_minimum: bool = False
    choices: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # spellings on the command line; empty: only --set, file and environment
    off_flags: tuple[str, ...] = ()  # of a bool: the spelling that means false
    metavar: str = ""
    aliases: tuple[str, ...] = ()  # other keys with the same meaning, accepted in files, --set and rows
    per_row: bool = False  # a row may carry its own value
    changes_answers: bool = False  # rows may come out different: part of the settings fingerprint
    split_commas: bool = False  # on the command line `a,b` is two items
    unit: str = ""

    @property
    def env(self) -> str:
        return f"DEEPINFER_{self.key.upper()}"

    @property
    def repeatable(self) -> bool:
        return self.kind in ("strings", "integers", "bias")


def setting(default: T, help: str, **details: Any) -> T:
    """Declare a setting on a dataclass field: `top_p: float = setting(1.0, "...", minimum=0, maximum=1)`."""
    metadata = {"setting": {"help": help, **details}}
    return dataclasses.field(default=default, metadata=metadata)


_KIND_OF_TYPE: dict[Any, Kind] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    Shard: "shard",
    FailureLimit: "failures",
    tuple[str, ...]: "strings",
    tuple[int, ...]: "integers",
    tuple[tuple[int, float], ...]: "bias",
    dict[str, Any]: "constraint",
}


def _kind_of(annotation: Any) -> tuple[Kind, bool, tuple[str, ...]]:
    """(kind, nullable, choices) of a field annotation such as `int | None` or `Literal["a", "b"]`."""
    nullable = False
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        members = [a for a in typing.get_args(annotation) if a is not type(None)]
        nullable = len(members) < len(typing.get_args(annotation))
        (annotation,) = members
    if typing.get_origin(annotation) is Literal:
        return "choice", nullable, tuple(typing.get_args(annotation))
    return _KIND_OF_TYPE[annotation], nullable, ()


def settings_of(group: str, cls: type[Any]) -> list[Setting]:
    """The table rows that the fields of dataclass `cls` declare, in order."""
    hints = typing.get_type_hints(cls)
    rows = []
    for field in dataclasses.fields(cls):
        details = dict(field.metadata["setting"])
        kind, nullable, choices = _kind_of(hints[field.name])
        kind = details.pop("kind", kind)
        rows.append(
            Setting(
                key=field.name,
                group=group,
                kind=kind,
                nullable=nullable,
                default=field.default,
                choices=choices,
                **details,
            )
        )
    return rows
