"""Where rows go: a file or stdout, whole lines only, compressed by suffix, every failure named."""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from deepinfer_cli.errors import InputError, OutputError, UsageError
from deepinfer_cli.requests.sources import Source, is_input

_FLUSH_BYTES = 1 << 16
STDOUT = "-"


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def _compressor_for(path: str) -> _Compressor | None:
    suffix = Path(path).suffix.lower()
    if suffix == ".gz":
        return zlib.compressobj(6, zlib.DEFLATED, 31)  # its header has no name and no time
    if suffix == ".zst":
        import zstandard

        compressor: _Compressor = zstandard.ZstdCompressor(level=3).compressobj()
        return compressor
    return None


def check_output(path: str, *, what: str, overwrite: bool, sources: Sequence[Source]) -> None:
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
        if info.st_size and not overwrite:
            hint = "--overwrite replaces it"
            raise UsageError(f"the {what} {path} exists and is not empty", hint)
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

    def __init__(self, fd: int, name: str, compressor: _Compressor | None, *, owns_fd: bool) -> None:
        self.name = name
        self._fd = fd
        self._owns_fd = owns_fd
        self._compressor = compressor
        self._lines: list[str] = []
        self._num_chars = 0
        self._num_bytes = 0  # written by completed flushes
        mode = os.fstat(fd).st_mode
        self._is_regular = stat.S_ISREG(mode)
        self.is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        self.num_rows = 0

    @classmethod
    def create(cls, path: str) -> OutputFile:
        """Opens and empties `path`; check_output() has been asked before."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from None
        return cls(fd, path, _compressor_for(path), owns_fd=True)

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
        """Hands all lines to the system (a compressed stream keeps back what its block still lacks)."""
        if not self._lines:
            return
        data = "".join(self._lines).encode()
        self._lines.clear()
        self._num_chars = 0
        self._write_all(data if self._compressor is None else self._compressor.compress(data))

    def close(self) -> None:
        """Flushes; a regular file is on the disk afterwards."""
        try:
            self.flush()
            if self._compressor is not None:
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
                raise
            except OSError as error:
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
