"""RunConfig: the resolved settings of one run, where each came from, and what was asked to be done."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from deepinfer_cli.config.settings import (
    ConstraintConfig,
    EngineConfig,
    ModelConfig,
    OutputConfig,
    RowsConfig,
    SamplingConfig,
    all_settings,
)
from deepinfer_cli.config.values import check_value, redact, to_json

Layer = Literal["cli", "env", "profile", "file", "model", "default"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Which layer decided a setting, and where exactly it was written."""

    layer: Layer
    where: str = ""  # "--temperature", "DEEPINFER_TOP_P", "run.yaml:3:1"

    def __str__(self) -> str:
        return f"{self.layer} {self.where}".rstrip()


DEFAULT_ORIGIN: Final = Origin("default")

Action = Literal["run", "dry_run", "validate"]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything one run was asked to do. Values are checked; nothing has been opened or loaded."""

    inputs: tuple[str, ...] = ()  # as written: paths, globs, "-"; empty = nothing was given
    action: Action = "run"
    show_tokens: bool = False  # with dry_run: print each row's tokens
    resume: bool = False  # go on with the outputs of an earlier run
    force: bool = False  # with resume: run again what no longer fits, instead of refusing
    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    constraints: ConstraintConfig = field(default_factory=ConstraintConfig)
    rows: RowsConfig = field(default_factory=RowsConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    profile: str | None = None
    config_file: str | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)  # of keys that are not at their default

    def get(self, key: str) -> Any:
        """The value of a setting by its key."""
        return getattr(getattr(self, all_settings()[key].group), key)

    def origin(self, key: str) -> Origin:
        return self.origins.get(key, DEFAULT_ORIGIN)

    def is_default(self, key: str) -> bool:
        """True when nobody set it: the model's own recommendation may then take its place."""
        return key not in self.origins

    def with_values(self, values: Mapping[str, Any], origin: Origin) -> RunConfig:
        """A copy in which `values` (checked, by key) replace what is there."""
        table = all_settings()
        parts: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            parts.setdefault(table[key].group, {})[key] = value
        changed = {name: dataclasses.replace(getattr(self, name), **part) for name, part in parts.items()}
        origins = {**self.origins, **dict.fromkeys(values, origin)}
        return dataclasses.replace(self, origins=origins, **changed)

    def with_model_defaults(self, values: Mapping[str, Any], where: str = "generation_config") -> RunConfig:
        """A copy in which the model's own recommendations stand where the user said nothing.

        Keys that are no sampling setting, and values that fail the check, are left out.
        """
        usable = {}
        for key, value in values.items():
            spec = all_settings().get(key)
            if spec is None or spec.group != "sampling" or not self.is_default(key):
                continue
            try:
                usable[key] = check_value(spec, value)
            except ValueError:
                continue
        return self.with_values(usable, Origin("model", where))

    def as_json(self) -> dict[str, Any]:
        """Resolved settings by key as plain JSON values, secrets redacted; for people and the run file."""
        values = {key: to_json(spec, self.get(key)) for key, spec in all_settings().items()}
        return {key: redact(v) if isinstance(v, str) else v for key, v in values.items()}
