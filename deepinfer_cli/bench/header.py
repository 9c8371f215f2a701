"""The header of a benchmark: everything that must be the same before two numbers may be set side by side."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from deepinfer_cli import __version__, machine
from deepinfer_cli.bench.prompts import corpus_digest
from deepinfer_cli.bench.spec import Cell, Sweep
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.version import git, version_facts

# The seven things without which a figure says nothing, in the order in which they are printed.
PINNED = (
    "checkpoint",
    "runtime",
    "effort_and_context",
    "memory_and_disk",
    "task_mix",
    "decode_speed",
    "basis",
)


def build_identity() -> dict[str, Any]:
    """What computed: package version, commit, and the very bytes of the native core."""
    native = find_spec("deepinfer_cli._native")
    digest = None
    if native is not None and native.origin is not None:
        digest = hashlib.sha256(Path(native.origin).read_bytes()).hexdigest()[:16]
    facts = version_facts()
    return {
        "version": __version__,
        "commit": facts["commit"],
        "dirty": _is_dirty(),
        "build_type": facts["build_type"],
        "compiler": facts["compiler"],
        "native_sha256": digest,
    }


def _is_dirty() -> bool | None:
    """Whether the checkout differs from its commit; None outside of one."""
    changes = git("status", "--porcelain", "--untracked-files=no")
    return None if changes is None else bool(changes)


def identity(model: LoadedModel, build: Mapping[str, Any], sweep: Sweep, peer: str | None) -> dict[str, Any]:
    """What a cell's key covers beside its load: the same key is the same measurement."""
    slo = {name: getattr(sweep.slo, name) for name in ("ttft_ms", "tpot_ms", "e2e_ms")}
    return {
        "build": {key: build[key] for key in ("version", "native_sha256")},
        "model": model.fingerprint,
        "tokenizer": model.tokenizer.fingerprint,
        "cpu": machine.cpu_name(),
        "cores": machine.num_cores(),
        "slo": slo,
        "price_per_hour": sweep.price_per_hour,
        **({} if peer is None else {"peer": peer}),
    }


def new_header(
    config: RunConfig,
    model: LoadedModel,
    sweep: Sweep,
    cells: Sequence[Cell],
    build: Mapping[str, Any],
    command: str,
) -> dict[str, Any]:
    """Everything known before the first repetition."""
    described, here = dict(model.description), machine.describe()
    rows = cells[0].rows
    return {
        "run_id": uuid.uuid4().hex[:12],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": command,
        "config_hash": _digest(config.as_json()),
        "build": dict(build),
        "slo": {name: getattr(sweep.slo, name) for name in ("ttft_ms", "tpot_ms", "e2e_ms")},
        "price_per_hour": sweep.price_per_hour,
        "checkpoint": {
            "name": model.name,
            "fingerprint": model.fingerprint,
            "source": described.get("source"),
            "revision": described.get("revision"),
            "quantisation": described.get("tensor_types"),
            "bytes": described.get("bytes"),
        },
        "runtime": {
            "engine": f"deepinfer {__version__}",
            "commit": build.get("commit"),
            "native_sha256": build.get("native_sha256"),
            "file_layout": described.get("format"),
            "files": described.get("files"),
            "weights": "packed into memory at load",
            "python": platform.python_version(),
        },
        "effort_and_context": {
            "reasoning": "none: raw prompts without a chat template" if rows is None else "as the rows ask",
            "context_limit": config.engine.max_model_len or model.max_context,
            "model_context": model.max_context,
            "longest_cell": max((c.load.input_len + c.load.output_len for c in cells), default=0)
            if rows is None
            else None,
        },
        "memory_and_disk": {
            "cpu": here.cpu,
            "cores": here.num_cores,
            "system": here.system,
            **_clock(),
            "memory_bytes": here.memory_bytes,
            "memory_free_bytes": here.memory_free_bytes,
            **_disk(model),
        },
        "task_mix": {
            "prompts": "made from prose and code shipped with deepinfer"
            if rows is None
            else "rows of the user",
            "sha256": corpus_digest() if rows is None else rows,
            "input_lens": sorted({c.load.input_len for c in cells}) if rows is None else None,
            "output_lens": sorted({c.load.output_len for c in cells}) if rows is None else None,
            "prefix_cache": "cold: every prompt is used once, in an engine that starts empty"
            if all(c.load.prompts == "unique" for c in cells) and rows is None
            else "see the measured hit rate of each cell",
            "answers": "exact lengths, ends of sequence ignored" if rows is None else "as the rows ask",
        },
    }


def finished(
    header: Mapping[str, Any], cells: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], order: str
) -> dict[str, Any]:
    """The header with what only the measurement tells."""
    speeds = [
        {
            "context": _context(cell),
            "concurrency": cell["load"]["concurrency"],
            "tokens_per_s_per_user": (cell["values"].get("steps") or {}).get("decode_tokens_per_s_per_user"),
        }
        for cell in cells
        if cell["status"] == "ok"
    ]
    return {
        **header,
        "runtime": {**header["runtime"], **facts},
        "decode_speed": speeds,
        "basis": {
            "order": order,
            "clock": "wall time, with CPU time of the process beside it; token times from the engine's steps",
            "counts": "token ids in the engine; warm-up and loading excluded, sampling included",
            "limits": "read rate and peaks of this machine, measured around each repetition on its threads",
            "interval": "median over repetitions, 95 % percentile bootstrap",
            "may_be_compared_with": "the same load, machine and checkpoint, measured by this command",
        },
    }


def _context(cell: Mapping[str, Any]) -> float | None:
    """Tokens in the cache at the end of an average request."""
    lengths = cell["values"].get("lengths") or {}
    means = [(lengths.get(name) or {}).get("mean") for name in ("input_tokens", "output_tokens")]
    known = [float(mean) for mean in means if mean is not None]
    return sum(known) if len(known) == 2 else None


def _clock() -> dict[str, Any]:
    """What the kernel says of the first core's frequency; empty values where it says nothing."""
    folder = Path("/sys/devices/system/cpu/cpu0/cpufreq")
    found: dict[str, Any] = {}
    for name, file in (
        ("governor", "scaling_governor"),
        ("khz", "scaling_cur_freq"),
        ("max_khz", "cpuinfo_max_freq"),
    ):
        try:
            found[name] = (folder / file).read_text().strip()
        except OSError:
            found[name] = None
    return found


def _disk(model: LoadedModel) -> dict[str, Any]:
    file = getattr(model, "file", None)
    if file is None or not file.files:
        return {"disk_free_bytes": None, "model_on": None}
    path = Path(file.files[0])
    return {"disk_free_bytes": shutil.disk_usage(path.parent).free, "model_on": _filesystem(path)}


def _filesystem(path: Path) -> str | None:
    """Type and device of the file system that holds `path`, as the kernel names them."""
    best: tuple[int, str] | None = None
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        device, mount, kind, *_ = line.split()
        if path.is_relative_to(mount) and (best is None or len(mount) >= best[0]):
            best = (len(mount), f"{kind} on {device}")
    return None if best is None else best[1]


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()
