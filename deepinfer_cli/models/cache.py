"""The model cache on disk.

    $DEEPINFER_CACHE/models/
      wheel/DISTRIBUTION-VERSION/FILE.gguf            a file taken out of a wheel
      hub/ORG--NAME/COMMIT/...                        files of one commit
      hub/ORG--NAME/COMMIT/.complete.json             written last: every file, its size and checksum
      hub/ORG--NAME/refs/REVISION                     the commit that a branch or tag stood for

Files appear under their final name only when they are whole and checked: written beside, synced, renamed.
Reading needs no lock, and a hit writes nothing, so that a cache may be shared and read-only.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from deepinfer_cli.errors import ResourceError


def cache_root() -> Path:
    """Folder of everything that deepinfer keeps; not created here."""
    named = os.environ.get("DEEPINFER_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deepinfer"


def models_root() -> Path:
    return cache_root() / "models"


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under `path` complete or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        publish(Path(temporary), path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def publish(temporary: Path, path: Path) -> None:
    """Renames a synced file into place and makes the rename durable."""
    temporary.chmod(0o644)
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def cannot_write(path: Path, error: OSError) -> ResourceError:
    return ResourceError(
        f"cannot write {path}: {error.strerror or error}",
        "DEEPINFER_CACHE names another folder for models",
    )


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
