"""Replacing a file: whole or not at all, and a disk that fails says so."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from deepinfer_cli.errors import OutputError
from deepinfer_cli.results.durable import replace_text, sync_folder


def _failing_fsync(code: int):
    def fsync(_fd: int) -> None:
        raise OSError(code, os.strerror(code))

    return fsync


def test_the_disk_failing_at_the_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", _failing_fsync(errno.EIO))
    with pytest.raises(OutputError, match=r"cannot write the folder of .*out"):
        sync_folder(tmp_path / "out")


def test_a_file_system_that_cannot_sync_folders_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fsync(fd: int) -> None:
        asked.append(fd)
        _failing_fsync(errno.EINVAL)(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    sync_folder(tmp_path / "out")
    assert asked


def test_a_failed_replacement_leaves_the_old_text_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    replace_text(target, "old")
    monkeypatch.setattr(os, "fsync", _failing_fsync(errno.ENOSPC))
    with pytest.raises(OutputError, match="cannot write"):
        replace_text(target, "new")
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
