"""-q, -v, --color and --progress of commands without a run config."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from deepinfer_cli.commands.talk_options import console_of
from deepinfer_cli.console import Console, Talk
from deepinfer_cli.errors import ConfigError


def configured(**options: Any) -> Talk:
    console = Console(stderr=io.StringIO(), stdout_open=False)
    context: Any = SimpleNamespace(obj=console)
    assert console_of(context, **options) is console
    return console.talk


def test_options_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_PROGRESS", "json")
    monkeypatch.setenv("DEEPINFER_COLOR", "never")
    monkeypatch.setenv("DEEPINFER_SEED", "not a number, and none of our business")
    assert configured(verbose=2, color="always") == Talk(progress="json", color="always", verbose=2)
    assert configured(quiet=True, progress="none") == Talk(progress="none", color="never", quiet=True)


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ConfigError, match='--color must be auto, always or never, got "blue"'):
        configured(color="blue")
