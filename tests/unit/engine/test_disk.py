"""A disk that fails in the middle of a run: the run ends and names the file, whole rows stay, and --resume
leaves what an undisturbed run would have left."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import EngineConfig, ModelConfig, OutputConfig
from deepinfer_cli.console import Console
from deepinfer_cli.engine import batch_run
from deepinfer_cli.errors import OutputError
from tests.support.runs import parse_rows, write_rows

ROWS = 60


class FailingDisk:
    """The os module's write and fsync, failing for one file from a certain call on."""

    def __init__(self, patch: pytest.MonkeyPatch, path: Path, code: int) -> None:
        self.path, self.code = path, code
        self.bytes_left: int | None = None  # for writes; None = no limit
        self.syncs_left: int | None = None
        self._write, self._fsync = os.write, os.fsync
        patch.setattr(os, "write", self.write)
        patch.setattr(os, "fsync", self.fsync)

    def _is_mine(self, fd: int) -> bool:
        try:
            return Path(f"/proc/self/fd/{fd}").readlink() == self.path
        except OSError:
            return False

    def _fail(self) -> None:
        raise OSError(self.code, os.strerror(self.code))

    def write(self, fd: int, data: Any) -> int:
        if self.bytes_left is None or not self._is_mine(fd):
            return self._write(fd, data)
        if self.bytes_left == 0:
            self._fail()
        written = self._write(fd, data[: self.bytes_left])
        self.bytes_left -= written
        return written

    def fsync(self, fd: int) -> None:
        if self.syncs_left is not None and self._is_mine(fd):
            if self.syncs_left == 0:
                self._fail()
            self.syncs_left -= 1
        self._fsync(fd)


def configured(tmp_path: Path, out: Path, **output: Any) -> RunConfig:
    rows = [
        {"id": i, "prompt": f"row {i}" if i % 7 else None, "max_tokens": 1 + i % 20, "n": 1 + i % 2}
        for i in range(ROWS)
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    return RunConfig(
        inputs=(str(path),),
        model=ModelConfig(model="fake"),
        engine=EngineConfig(threads=1, max_num_seqs=4),
        output=OutputConfig(output=str(out), progress="none", quiet=True, **output),
    )


def resumed(config: RunConfig) -> RunConfig:
    import dataclasses

    return dataclasses.replace(config, resume=True)


@pytest.fixture
def want(tmp_path: Path) -> bytes:
    """What an undisturbed run leaves."""
    out = tmp_path / "want.jsonl"
    assert batch_run.run(configured(tmp_path, out), Console()) == 3
    return out.read_bytes()


def check_and_resume(config: RunConfig, want: bytes, error: OutputError, code: int) -> None:
    out = Path(str(config.output.output))
    assert error.exit_code == 1
    assert str(out) in error.message and os.strerror(code) in error.message
    left = out.read_bytes()
    assert want.startswith(left) and (not left or left.endswith(b"\n"))
    parse_rows(left)
    assert [t.name for t in threading.enumerate() if t.name in ("watchdog", "di-engine")] == []


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ESTALE]
)
def test_a_write_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, want: bytes, code: int) -> None:
    out = tmp_path / "out.jsonl"
    config = configured(tmp_path, out)
    with monkeypatch.context() as patch:
        disk = FailingDisk(patch, out, code)
        disk.bytes_left = len(want) * (code % 5) // 6 + 3
        with pytest.raises(OutputError) as caught:
            batch_run.run(config, Console())
    check_and_resume(config, want, caught.value, code)
    assert batch_run.run(resumed(config), Console()) == 3
    assert out.read_bytes() == want


@pytest.mark.parametrize("syncs", [0, 1])
def test_a_sync_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, want: bytes, syncs: int) -> None:
    out = tmp_path / "out.jsonl"
    config = configured(tmp_path, out, fsync=0.0)
    with monkeypatch.context() as patch:
        FailingDisk(patch, out, errno.EIO).syncs_left = syncs
        with pytest.raises(OutputError) as caught:
            batch_run.run(config, Console())
    check_and_resume(config, want, caught.value, errno.EIO)
    assert batch_run.run(resumed(config), Console()) == 3
    assert out.read_bytes() == want


def test_the_other_file_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, errors = tmp_path / "out.jsonl", tmp_path / "errors.jsonl"
    config = configured(tmp_path, out, errors=str(errors))
    with monkeypatch.context() as patch:
        FailingDisk(patch, out, errno.ENOSPC).bytes_left = 8000
        with pytest.raises(OutputError, match=r"out\.jsonl"):
            batch_run.run(config, Console())
    assert parse_rows(errors.read_bytes())[0]["id"] == 0  # written before the disk was full
    assert batch_run.run(resumed(config), Console()) == 3
    ids = [row["id"] for path in (out, errors) for row in parse_rows(path.read_bytes())]
    assert sorted(ids) == list(range(ROWS))


def test_a_compressed_output_is_not_written_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, want: bytes
) -> None:
    out = tmp_path / "out.jsonl.gz"
    config = configured(tmp_path, out)
    with monkeypatch.context() as patch:
        FailingDisk(patch, out, errno.ENOSPC).bytes_left = 100
        with pytest.raises(OutputError):
            batch_run.run(config, Console())
    assert out.stat().st_size <= 100
