"""Downloads from a hub of our own that drops, lies, refuses, redirects, stalls and drips, in any order."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from deepinfer_cli.errors import DeepInferError
from deepinfer_cli.models import download, hub_http
from tests.support.hub_server import Hub, serving
from tests.torture.jobs import Job, Scale, Scenario, Space, nothing_to_prepare
from tests.torture.record import Tally

_NAME = "org/model"
_STALL_SECONDS = 0.3
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE")


@dataclass(frozen=True)
class Fault:
    """State of the hub during one download, and whether the download gets its files all the same."""

    fields: dict[str, Any]
    arrives: bool


FAULTS = {
    "download: connection drops at 60 %": (
        Fault({"drops": 1}, True),
        Fault({"drops": 4}, True),
        Fault({"drops": 2, "ignores_ranges": True}, True),
        Fault({"drops": 100, "drop_share": 0.0}, False),
    ),
    "download: wrong bytes of the right size": (
        Fault({"wrong_bytes": 1}, True),
        Fault({"wrong_bytes": 100}, False),
        Fault({"wrong_bytes": 1, "drops": 1}, True),
    ),
    "download: 401, 403, 404, 500, gated": (
        *(Fault({"status": status}, False) for status in (401, 403, 404, 500, 503)),
        Fault({"gated": True}, False),
        Fault({"token": "secret"}, False),
        Fault({"unlisted": ("model.safetensors",)}, False),
        Fault({"revisions": ()}, False),
    ),
    "download: redirects": (
        Fault({"redirects": True}, True),
        Fault({"redirects": True, "drops": 1}, True),
        Fault({"loops": True}, False),
    ),
    "download: slow drips and stalls": (
        Fault({"drip_seconds": 0.002}, True),
        Fault({"drip_seconds": 0.002, "drops": 1}, True),
        Fault({"stalls": 1}, True),
    ),
}


@contextmanager
def _quick(cache: Path, url: str) -> Iterator[None]:
    """Pauses between attempts are not waited for, and a stall is known early."""
    environ = {"DEEPINFER_CACHE": str(cache), "HF_ENDPOINT": url}
    kept = {key: value for key, value in os.environ.items() if key not in _TOKENS}
    with (
        mock.patch.dict(os.environ, {**kept, **environ}, clear=True),
        mock.patch.object(hub_http.time, "sleep", lambda seconds: None),
        mock.patch.object(hub_http, "STALL_SECONDS", _STALL_SECONDS),
    ):
        yield


def _files(rng: random.Random) -> dict[str, bytes]:
    return {
        "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
        "tokenizer.json": b"{}" + b" " * rng.randrange(1000),
        "model.safetensors": rng.randbytes(rng.randrange(1, 2_000_000)),
    }


def _get() -> Path:
    plan = download.make_plan(_NAME, say=lambda text: None)
    return download.fetch(plan, say=lambda text: None, advance=lambda count: None).path


class Downloads:
    """One repository: faults one after another on the same cache, then a hub that works."""

    def __init__(self, kind: str, rng: random.Random, cache: Path, replay: str) -> None:
        self._rng, self._cache, self._replay = rng, cache, replay
        self._faults = [rng.choice(FAULTS[kind]) for _ in range(rng.randint(1, 3))]
        self._files = _files(rng)
        self.tally = Tally()

    def run(self) -> Tally:
        with serving(Hub(dict(self._files))) as hub, _quick(self._cache, hub.url):
            for fault in self._faults:
                self._attempt(hub, fault)
            self._attempt(hub, Fault({}, True))
            hub.released.set()
        return self.tally

    def _attempt(self, hub: Hub, fault: Fault) -> None:
        plain = Hub(dict(self._files))
        for key in (
            "files",
            "status",
            "gated",
            "token",
            "drops",
            "drop_share",
            "wrong_bytes",
            "ignores_ranges",
        ):
            setattr(hub, key, getattr(plain, key))
        for key in ("redirects", "unlisted", "revisions", "stalls", "loops", "drip_seconds"):
            setattr(hub, key, getattr(plain, key))
        for key, value in fault.fields.items():
            setattr(hub, key, value)
        what = f"{self._replay}: {fault.fields or 'a hub that works'}"
        self.tally.injected += bool(fault.fields)
        was_there = self._complete_before()
        try:
            path = _get()
        except DeepInferError as error:
            if fault.arrives:
                self.tally.failures.append(f"{what}: refused: {error.message}")
            if "\n" in error.message:
                self.tally.failures.append(f"{what}: a message of several lines: {error.message}")
        else:
            if not fault.arrives and not was_there:
                self.tally.failures.append(f"{what}: arrived")
            self.tally.lost += sum(not (path / name).exists() for name in self._files)
        self._check_cache(what)

    def _complete_before(self) -> bool:
        return any(self._cache.rglob(".complete.json"))

    def _check_cache(self, what: str) -> None:
        """A file under its own name is whole and right, always."""
        for path in self._cache.rglob("*"):
            if path.name in self._files and path.is_file():
                self.tally.rows_checked += 1
                if path.read_bytes() != self._files[path.name]:
                    self.tally.changed += 1
                    self.tally.failures.append(f"{what}: {path.name} has other bytes")


def _jobs(scale: Scale) -> list[Job]:
    return [Job("hub", kind, seed, {"repositories": 10}) for kind in FAULTS for seed in scale.seeds(4)]


def _run(job: Job, space: Space) -> Tally:
    tally, rng = Tally(), job.rng()
    for number in range(job.settings["repositories"]):
        replay = f"{job.replay} repository {number}"
        tally.add(Downloads(job.fault, rng, space.own / f"cache{number}", replay).run())
    return tally


SCENARIO = Scenario(nothing_to_prepare, _jobs, _run, "downloads from a hub that misbehaves (rows are files)")
