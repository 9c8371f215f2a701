"""With which settings a task is run: the user's, else the task's, else those that the model's makers state.

flags, environment, YAML   >   task   >   model protocol   >   generation_config.json   >   defaults
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.config.settings import OutputConfig, RowsConfig
from deepinfer_cli.eval.tasks.base import Task


@dataclass(frozen=True, slots=True)
class ModelProtocol:
    """How the makers of a model evaluate it."""

    settings: Mapping[str, Any]  # sampling settings by key
    template_kwargs: Mapping[str, Any]  # for the chat template
    source: str


# By the start of a model's name, lower case, "_" and "." as they are.
PROTOCOLS: Final[Mapping[str, ModelProtocol]] = MappingProxyType(
    {
        "deepseek-v4.1-flash": ModelProtocol(
            settings=MappingProxyType({"temperature": 1.0, "top_p": 0.95, "max_tokens": 262_144}),
            template_kwargs=MappingProxyType({"thinking": True, "reasoning_effort": 100}),
            source="DeepSeek-V4.1-Flash model card",
        )
    }
)
DEFAULT_MAX_TOKENS: Final = 32_768  # for models whose makers say nothing; the context may end earlier


@dataclass(frozen=True, slots=True)
class Protocol:
    """What one evaluation does, beyond the settings in its RunConfig."""

    num_samples: int  # per problem
    shuffle_seed: int
    template_kwargs: Mapping[str, Any]
    source: str  # where the sampling settings come from, for people

    def as_json(self) -> dict[str, Any]:
        return {
            "samples_per_problem": self.num_samples,
            "shuffle_seed": self.shuffle_seed,
            "chat_template_kwargs": dict(self.template_kwargs),
            "settings_from": self.source,
        }


def model_protocol(name: str | None) -> ModelProtocol | None:
    """The protocol of a model by the name the user gave, whatever owner or folder stands before it."""
    tail = (name or "").rstrip("/").rpartition("/")[2].lower()
    return next((p for start, p in PROTOCOLS.items() if tail.startswith(start)), None)


def plan(
    config: RunConfig, task: Task, *, shuffle_seed: int, template_kwargs: Mapping[str, Any]
) -> tuple[RunConfig, Protocol]:
    """The run's settings and the protocol. Rows are one sample each, in whatever order they finish."""
    known = model_protocol(config.model.model)
    num_samples = task.num_samples if config.is_default("n") else config.sampling.n
    source = "flags and defaults"
    if known is not None:
        config = _fill(config, known.settings, Origin("model", known.source))
        source = known.source
    if task.settings:
        config = _fill(config, {**task.settings}, Origin("model", f"task {task.name}"), replace="model")
        source = f"task {task.name}"
    if config.is_default("max_tokens"):
        config = _fill(config, {"max_tokens": DEFAULT_MAX_TOKENS}, Origin("model", "eval default"))
    config = config.with_values({"n": 1}, Origin("default", "one row per sample"))
    kwargs = {**(known.template_kwargs if known else {}), **template_kwargs}
    return _own_rows(config), Protocol(num_samples, shuffle_seed, kwargs, source)


def _fill(
    config: RunConfig, values: Mapping[str, Any], origin: Origin, replace: str | None = None
) -> RunConfig:
    """`values` where the user said nothing (or where only layer `replace` spoke)."""
    usable = {k: v for k, v in values.items() if config.is_default(k) or config.origin(k).layer == replace}
    return config.with_values(usable, origin)


def _own_rows(config: RunConfig) -> RunConfig:
    """Settings of rows and output that would change what a question is stay at their defaults."""
    import dataclasses

    rows = RowsConfig(truncate_prompt="error")
    out = config.output
    output = OutputConfig(
        order="completion",
        progress=out.progress,
        color=out.color,
        quiet=out.quiet,
        verbose=out.verbose,
        log_format=out.log_format,
        log_file=out.log_file,
    )
    return dataclasses.replace(config, rows=rows, output=output)
