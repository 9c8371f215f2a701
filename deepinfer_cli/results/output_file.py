"""Where rows go: a file or stdout, whole lines only, compressed by suffix, every failure named."""

from __future__ import annotations

import contextlib
import math
import os
import stat
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from deepinfer_cli.errors import InputError, OutputError, UsageError
from deepinfer_cli.requests.sources import Source, is_input
from deepinfer_cli.results.durable import sync_folder
from deepinfer_cli.results.lock import lock

_FLUSH_BYTES = 1 << 16
_MEMBER_SECONDS = 5.0  # a compressed member or frame ends so often that a crash loses little
STDOUT = "-"
# Other names of it: opening them would reach what descriptor 1 is by then, which is stderr.
STDOUT_NAMES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def _compressor_for(path: str) -> _Compressor | None:
    suffix = Path(path).suffix.lower()
    if suffix == ".gz":
        return zlib.compressobj(6, zlib.DEFLATED, 31)  # its header has no name and no time
    if suffix == ".zst":
        import zstandard

        compressor: _Compressor = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
        return compressor
    return None


def check_output(
    path: str, *, what: str, overwrite: bool, sources: Sequence[Source], resume: bool = False
) -> None:
    """Refuses, before anything runs, an output that cannot or must not be written."""
    target = Path(path)
    try:
        info = target.stat()
    except FileNotFoundError:
        _check_folder(target, what)
        return
    except OSError as error:
        raise UsageError(f"cannot write the {what} {path}: {error.strerror}") from None
    if stat.S_ISDIR(info.st_mode):
        raise UsageError(f"the {what} {path} is a folder", "name a file in it")
    if stat.S_ISREG(info.st_mode):
        refuse_same_file(path, (info.st_dev, info.st_ino), sources)
        if info.st_size and not overwrite and not resume:
            hint = "--resume goes on with it, --overwrite replaces it"
            raise UsageError(f"the {what} {path} exists and is not empty", hint)
    elif resume:
        raise UsageError(f"--resume: the {what} {path} is no file", "name a file with -o")
    if not os.access(path, os.W_OK):
        raise UsageError(f"the {what} {path} is not writable")


def refuse_same_file(path: str, identity: tuple[int, int], sources: Sequence[Source]) -> None:
    same = is_input(identity, sources)
    if same is not None:
        raise InputError(f"{path} is both input and output ({same})", "write to another file, then move it")


def _check_folder(target: Path, what: str) -> None:
    folder = target.parent
    if not folder.is_dir():
        raise UsageError(f"the folder of the {what} does not exist: {folder}", f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"the folder of the {what} is not writable: {folder}")


class OutputFile:
    """Buffered whole lines. A failed write leaves an uncompressed file at its last whole line."""

    def __init__(
        self,
        fd: int,
        name: str,
        *,
        owns_fd: bool,
        like: str = "",  # a file name whose suffix says how to compress
        sync_seconds: float | None = None,  # between syncs; None: only when it is closed
    ) -> None:
        self.name = name
        self._fd = fd
        self._owns_fd = owns_fd
        self._like = like
        self._compressor = _compressor_for(like)
        self._lines: list[str] = []
        self._num_chars = 0
        info = os.fstat(fd)
        mode = info.st_mode
        self._is_regular = stat.S_ISREG(mode)
        self._num_bytes = info.st_size  # written by completed flushes, earlier attempts included
        self._is_dirty = False  # written to since the last sync
        self._is_broken = False  # a write failed: whatever came after it would not be in its place
        self._sync_seconds = sync_seconds
        self._next_sync = self._after_pause()
        self.is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        self.num_rows = 0
        self._is_closed = False

    @classmethod
    def create(
        cls,
        path: str,
        *,
        append: bool = False,
        sync_seconds: float | None = None,
        like: str | None = None,
        is_locked: bool = True,
    ) -> OutputFile:
        """Opens `path`, and empties it unless `append`; check_output() has been asked before. Compressed as
        the name says, or the name `like`. `is_locked`: refused while another process writes it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if append else 0)
        fd = -1
        try:
            fd = os.open(path, flags, 0o666)
            if stat.S_ISREG(os.fstat(fd).st_mode):
                if is_locked:
                    lock(fd, path)
                if not append:
                    os.ftruncate(fd, 0)
        except (OSError, UsageError) as error:
            if fd >= 0:
                os.close(fd)
            if isinstance(error, UsageError):
                raise
            raise OutputError(f"cannot write {path}: {error.strerror}") from None
        file = cls(fd, path, owns_fd=True, like=like or path, sync_seconds=sync_seconds)
        if file._is_regular:
            sync_folder(path)
        return file

    @property
    def fd(self) -> int:
        return self._fd

    def write(self, line: str) -> None:
        self._lines.append(line)
        self._num_chars += len(line)
        self.num_rows += 1
        if self._num_chars >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hands all lines to the system, and from time to time to the disk."""
        if self._lines:
            data = "".join(self._lines).encode()
            self._lines.clear()
            self._num_chars = 0
            self._write_all(data if self._compressor is None else self._compressor.compress(data))
            self._is_dirty = True
        if self._is_dirty and self._is_regular and time.monotonic() >= self._next_sync:
            self._make_durable()

    def _make_durable(self) -> None:
        """What was written so far outlives a killed process, and a power loss unless syncing is off."""
        if self._compressor is not None:
            self._write_all(self._compressor.flush())
            self._compressor = _compressor_for(self._like)
        if self._sync_seconds is not None:
            self._sync()
        self._is_dirty = False
        self._next_sync = self._after_pause()

    def _after_pause(self) -> float:
        if self._sync_seconds is not None:
            return time.monotonic() + self._sync_seconds
        # Without syncing, compressed rows still have to leave the compressor's memory.
        return time.monotonic() + _MEMBER_SECONDS if self._compressor is not None else math.inf

    def close(self) -> None:
        """Flushes; a regular file is on the disk afterwards. After a failed write only what was
        written before it is kept. The second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._is_broken:
                with contextlib.suppress(OSError):
                    os.fsync(self._fd)
                return
            self.flush()
            # An empty member says nothing, but a file without any member is no archive.
            if self._compressor is not None and (self._is_dirty or not self._num_bytes):
                self._write_all(self._compressor.flush())
            if self._is_regular:
                self._sync()
        finally:
            self.abandon()

    def abandon(self) -> None:
        if self._owns_fd:
            self._owns_fd = False
            os.close(self._fd)

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        num_written = 0
        while num_written < len(data):
            try:
                num_written += os.write(self._fd, view[num_written:])
            except BrokenPipeError:
                self._is_broken = True
                raise
            except OSError as error:
                self._is_broken = True
                if self._compressor is None:
                    self._cut_back(data.rfind(b"\n", 0, num_written) + 1)
                raise OutputError(f"cannot write {self.name}: {error.strerror}") from None
        self._num_bytes += num_written

    def _cut_back(self, num_whole: int) -> None:
        """A torn last line would fuse with whatever is appended later."""
        if self._is_regular and self._owns_fd:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._num_bytes + num_whole)

    def _sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise OutputError(f"cannot write {self.name}: {error.strerror}") from None
