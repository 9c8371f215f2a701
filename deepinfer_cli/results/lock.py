"""One process a file: two runs that append to the same output would mix their rows."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from deepinfer_cli.errors import UsageError


def lock(fd: int, path: str) -> None:
    """Until `fd` is closed or the process dies, whatever kills it. File systems without locks are let be."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"another deepinfer is writing {path}", "wait for it, or name another file"
        ) from None
    except OSError:
        pass


class Held:
    """Context manager: an existing file's lock, held while it is compared, repaired and appended to."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> Held:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return self  # nothing is there yet
        try:
            lock(self._fd, self._path)
        except UsageError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def renew(self) -> None:
        """The file may have been replaced by another one of its name."""
        with contextlib.suppress(OSError):
            if self._fd >= 0 and os.path.samestat(os.fstat(self._fd), Path(self._path).stat()):
                return
        self.__exit__()
        self.__enter__()
