"""Replacing a file in one step that also survives a power loss: written beside, on the disk, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from deepinfer_cli.errors import OutputError

# Some file systems cannot sync a folder, and a folder may be writable without being readable.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)


def sync_folder(path: str | Path) -> None:
    """Puts the names in the folder of `path` on the disk. Raises OutputError when the disk fails at it."""
    try:
        fd = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise OutputError(f"cannot write the folder of {path}: {error.strerror}") from None


def replace_text(path: str | Path, text: str) -> None:
    """A reader sees the old content or the new one, never half of it. What is no UTF-8 is written escaped."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.tmp")
    try:
        with beside.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OutputError(f"cannot write {path}: {error.strerror}") from None
    sync_folder(target)


def rename_over(beside: str | Path, target: str | Path) -> None:
    """The last step for a file that was written and synced beside `target`, whose permissions stay."""
    try:
        with contextlib.suppress(OSError):
            shutil.copymode(target, beside)
        Path(beside).replace(target)
    except OSError as error:
        raise OutputError(f"cannot replace {target}: {error.strerror}") from None
    sync_folder(target)
