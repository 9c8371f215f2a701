"""Models from the hub: which files of a repository make a model, and where they lie in the cache."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepinfer_cli.errors import ModelError, ResourceError
from deepinfer_cli.models.cache import models_root, written_whole
from deepinfer_cli.models.hub_http import (
    HubFile,
    HubListing,
    HubRefusal,
    fetch_file,
    is_safe_name,
)

COMPLETE = ".complete.json"
_REPO = re.compile(r"[\w][\w.-]{0,95}/[\w][\w.-]{0,95}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Beside the weights: everything that configures, tokenises or renders. No code is ever fetched.
_SMALL_FILES = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors.index.json",
}


@dataclass(frozen=True, slots=True)
class HubName:
    """`org/name` or `org/name:file.gguf`, at a revision."""

    repo: str
    file: str | None
    revision: str = "main"

    @property
    def text(self) -> str:
        return self.repo if self.file is None else f"{self.repo}:{self.file}"

    @property
    def folder(self) -> Path:
        return models_root() / "hub" / self.repo.replace("/", "--")


def parse_hub_name(name: str, revision: str | None = None) -> HubName | None:
    """None when `name` does not look like a hub id."""
    repo, colon, file = name.partition(":")
    if not _REPO.fullmatch(repo) or ".." in repo or (colon and not is_safe_name(file)):
        return None
    revision = revision or "main"
    if ".." in revision or revision.startswith("/") or not re.fullmatch(r"[\w./-]{1,200}", revision):
        raise ModelError(f"{revision!r} is no revision", "--revision takes a branch, tag or commit")
    return HubName(repo, file or None, revision)


def cached_commit(name: HubName) -> str | None:
    """The commit that this revision stood for when it was fetched."""
    if _COMMIT.fullmatch(name.revision):
        return name.revision
    try:
        with (name.folder / "refs" / name.revision).open("rb") as file:
            text = file.read(100).decode().strip()
    except (OSError, ValueError):
        return None
    return text if _COMMIT.fullmatch(text) else None


def cached_model(name: HubName, commit: str | None = None) -> Path | None:
    """The folder or file in the cache, when all of it is there. Touches no network and writes nothing."""
    commit = commit or cached_commit(name)
    if commit is None:
        return None
    snapshot = name.folder / commit
    if name.file is not None:
        path = snapshot / name.file  # under its final name only when it is whole
        return path if path.is_file() else None
    try:
        manifest = json.loads((snapshot / COMPLETE).read_text())
        files = [(snapshot / str(entry["name"]), int(entry["bytes"])) for entry in manifest["files"]]
        if not all(is_safe_name(str(entry["name"])) for entry in manifest["files"]):
            return None
        whole = all(path.stat().st_size == size for path, size in files)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not whole:
        return None
    weights = [path for path, _ in files if path.suffix == ".gguf"]
    return weights[0] if len(weights) == 1 else snapshot


def select_files(listing: HubListing, file: str | None) -> list[HubFile]:
    """The files that make the model. Raises HubRefusal when the repository does not say which."""
    if file is not None:
        found = listing.find(file)
        if found is None:
            raise HubRefusal(f"{listing.repo} has no file {file}", _offer(listing))
        return [found]
    top = [entry for entry in listing.files if "/" not in entry.name]
    if any(entry.name.endswith(".safetensors") for entry in top):
        chosen = [e for e in top if e.name in _SMALL_FILES or e.name.endswith(".safetensors")]
        merged = [e for e in chosen if not e.name.startswith("consolidated")]  # a second copy of the weights
        return merged
    ggufs = [entry for entry in listing.files if entry.name.endswith(".gguf")]
    if len(ggufs) == 1:
        return ggufs
    if ggufs:
        raise HubRefusal(f"{listing.repo} has {len(ggufs)} GGUF files; name one", _offer(listing))
    raise HubRefusal(
        f"{listing.repo} has neither safetensors nor GGUF weights",
        "weights in pickle files (.bin, .pt) are never loaded",
    )


def _offer(listing: HubListing) -> str:
    names = [entry.name for entry in listing.files if entry.name.endswith(".gguf")]
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"deepinfer download {listing.repo}:FILE with one of {shown}" if names else "it has no GGUF file"


def fetch_model(
    name: HubName,
    listing: HubListing,
    files: Sequence[HubFile],
    *,
    say: Callable[[str], None],
    advance: Callable[[int], None],
) -> Path:
    """Brings the files into the cache; the model's path. What is there already is not touched."""
    snapshot = name.folder / listing.commit
    for file in files:
        target = snapshot / file.name
        if target.is_file() and target.stat().st_size == file.num_bytes:
            advance(file.num_bytes)
            continue
        fetch_file(listing, file, target, say=say, advance=advance)
    if name.file is None:
        manifest = {
            "repo": listing.repo,
            "commit": listing.commit,
            "files": [{"name": f.name, "bytes": f.num_bytes, "digest": f.digest} for f in files],
        }
        _write_if_changed(snapshot / COMPLETE, json.dumps(manifest, indent=1).encode())
    if not _COMMIT.fullmatch(name.revision):
        _write_if_changed(name.folder / "refs" / name.revision, f"{listing.commit}\n".encode())
    path = cached_model(name, listing.commit)
    if path is None:
        raise ResourceError(f"{snapshot}: files vanished while the model was fetched")
    return path


def missing_bytes(name: HubName, listing: HubListing, files: Sequence[HubFile]) -> int:
    """Bytes still to fetch, counting partial files as they stand."""
    total = 0
    for file in files:
        target = name.folder / listing.commit / file.name
        partial = target.with_name(f".{target.name}.{file.key}.part")
        if target.is_file() and target.stat().st_size == file.num_bytes:
            continue
        have = partial.stat().st_size if partial.is_file() else 0
        total += max(0, file.num_bytes - have)
    return total


def _write_if_changed(path: Path, data: bytes) -> None:
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        pass
    with written_whole(path) as out:
        out.write(data)
