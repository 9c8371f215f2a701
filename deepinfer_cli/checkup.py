"""The examination behind `deepinfer doctor`: facts by section, and the blockers among them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deepinfer_cli import accelerators, machine
from deepinfer_cli.config import environment
from deepinfer_cli.config.layers import resolve
from deepinfer_cli.config.run_config import Origin
from deepinfer_cli.errors import DeepInferError, describe
from deepinfer_cli.models.cache import cache_root, models_root
from deepinfer_cli.models.fit import free_disk, human_bytes
from deepinfer_cli.models.registry import KNOWN_MODELS
from deepinfer_cli.models.resolve import cached_known
from deepinfer_cli.version import version_facts

READ_RATE_SECONDS = 0.3
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
OTHER_VARIABLES = ("HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_HOME", "HTTPS_PROXY", "https_proxy")


@dataclass
class Report:
    """section -> name -> plain value, in the order of examination."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    blockers: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Keys without spaces, for jq; names of variables and settings stay as they are."""
        sections = {
            section: {name.replace(" ", "_"): value for name, value in facts.items()}
            for section, facts in self.sections.items()
        }
        return {**sections, "warnings": self.warnings, "blockers": self.blockers}

    def lines(self) -> list[str]:
        lines = []
        for section, facts in self.sections.items():
            lines.append(section)
            lines += [f"  {_label(name)}: {_shown(name, value)}" for name, value in facts.items()]
        lines += [f"warning: {text}" for text in self.warnings]
        lines += [f"blocker: {text}" for text in self.blockers]
        return lines if self.blockers else [*lines, "nothing blocks a run"]


def examine(model: str | None) -> Report:
    report = Report()
    for section, look in (
        ("build", _build),
        ("machine", _machine),
        ("engine", _engine),
        ("settings", _settings),
        ("models", _models),
    ):
        _look(report, section, look)
    if model is not None:
        _look(report, "model", lambda r: _model(r, model))
    return report


def _look(report: Report, section: str, look: Callable[[Report], dict[str, Any]]) -> None:
    """One section; what goes wrong in it is a blocker, and the others are still looked at."""
    try:
        report.sections[section] = look(report)
    except Exception as error:
        told: DeepInferError = describe(error)
        report.sections.setdefault(section, {})
        report.blockers.append(told.message + (f" ({told.hint})" if told.hint else ""))


def _label(name: str) -> str:
    return name.removesuffix("bytes").replace("_", " ").strip() or "size"


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("bytes"):
        return human_bytes(value)
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{k} {_shown(k, v)}" for k, v in value.items()) or "none"
    return str(value)


def _build(report: Report) -> dict[str, Any]:
    facts = version_facts()
    if not facts["native"]:
        problem = machine.native_problem()
        report.blockers.append(f"the native core cannot be loaded: {problem} (deepinfer build)")
    return {**facts, "python": platform.python_version()}


def _machine(report: Report) -> dict[str, Any]:
    facts = asdict(machine.describe())
    found = accelerators.detected()
    if found:
        report.warnings.append(f"found {', '.join(found)}; this version computes on the CPU only")
    needs = {name: [str(p) for p in accelerators.prerequisites(name) if not p.enough] for name in found}
    return {**facts, "accelerators": found, **{f"missing for {k}": v for k, v in needs.items()}}


def _engine(report: Report) -> dict[str, Any]:
    if machine.native_problem() is not None:
        return {}
    checks = machine.kernel_checks()
    failed = [f"{check.kernel} at {check.isa}: {check.detail}" for check in checks if not check.ok]
    report.blockers += [f"kernel check failed: {text}" for text in failed]
    return {
        "levels": machine.isa_levels(),
        "level that runs": machine.default_isa(),
        "kernel checks": f"{len(checks) - len(failed)} of {len(checks)} passed",
        "memory read rate": f"{machine.memory_read_gbps(READ_RATE_SECONDS):.1f} GB/s",
    }


def _settings(report: Report) -> dict[str, Any]:
    report.warnings += [message for _, message, _ in environment.warnings_about(os.environ)]
    names = sorted(n for n in os.environ if n.startswith(environment.PREFIX))
    shown = {name: os.environ[name] for name in (*names, *OTHER_VARIABLES) if name in os.environ}
    shown.update({name: "set" for name in SECRETS if os.environ.get(name)})
    config = resolve([], environ=os.environ, config_file=None, profile=None).config
    if machine.native_problem() is None and config.engine.isa not in ("auto", *machine.isa_levels()):
        origin = config.origin("isa")
        report.blockers.append(f"{origin}: this CPU has no level {config.engine.isa}")
    changed = {key: value for key, value in config.as_json().items() if not config.is_default(key)}
    return {"environment": shown, "changed settings": changed}


def _models(report: Report) -> dict[str, Any]:
    root = models_root()
    facts: dict[str, Any] = {"cache": str(cache_root()), "free bytes": free_disk(root)}
    if not _can_write(root):
        report.warnings.append(
            f"{cache_root()} cannot be written: models there can be used, none can be added"
        )
    for known in KNOWN_MODELS.values():
        found = cached_known(known)
        facts[known.name] = None if found is None else str(found.path)
    facts["from the hub"] = _hub_models(root)
    return facts


def _can_write(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


def _hub_models(root: Path) -> list[str]:
    from deepinfer_cli.models.hub import COMPLETE

    try:
        folders = sorted((root / "hub").iterdir())
    except OSError:
        return []
    found = []
    for folder in folders:
        commits = [c.name[:12] for c in folder.iterdir() if (c / COMPLETE).is_file() or any(c.glob("*.gguf"))]
        if commits:
            found.append(f"{folder.name.replace('--', '/', 1)} ({', '.join(sorted(commits))})")
    return found


def _model(report: Report, name: str) -> dict[str, Any]:
    """Opened as a run would open it; what memory it takes."""
    from deepinfer_cli.models import load
    from deepinfer_cli.models.fit import plan_memory

    config = resolve([], environ=os.environ, config_file=None, profile=None).config
    loaded = load(config.with_values({"model": name}, Origin("cli", "--model")))
    memory = plan_memory(
        loaded.description["bytes"], loaded.description["kv_bytes_per_token"], loaded.max_context
    )
    free = machine.describe().memory_free_bytes
    if free and memory > free:
        report.blockers.append(
            f"{name} needs about {human_bytes(memory)} of memory and {human_bytes(free)} are free "
            "(take a file with smaller tensor types)"
        )
    return {
        "name": loaded.name,
        "max context": f"{loaded.max_context:,} tokens",
        "chat template": loaded.renderer.has_template,
        "fingerprint": loaded.fingerprint,
        **{k: v for k, v in loaded.description.items() if v is not None},
        "memory needed bytes": memory,
    }
