"""-q, -v, --color and --progress of commands without a run config."""

from __future__ import annotations

import io
from typing import Any

import pytest

from deepinfer_cli.app import COMMANDS, load_command
from deepinfer_cli.commands.talk_options import set_up
from deepinfer_cli.console import Console, Talk
from deepinfer_cli.errors import ConfigError


def configured(**options: Any) -> Talk:
    console = Console(stderr=io.StringIO(), stdout_open=False)
    set_up(console, options)
    return console.talk


def test_options_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_PROGRESS", "json")
    monkeypatch.setenv("DEEPINFER_COLOR", "never")
    monkeypatch.setenv("DEEPINFER_SEED", "not a number, and none of our business")
    assert configured(verbose=2, color="always") == Talk(progress="json", color="always", verbose=2)
    assert configured(quiet=True, progress="none") == Talk(progress="none", color="never", quiet=True)
    assert configured(quiet=False, verbose=0, color=None) == Talk(progress="json", color="never")


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ConfigError, match='--color must be auto, always or never, got "blue"'):
        configured(color="blue")


def test_every_command_has_them() -> None:
    for name in COMMANDS:
        options = {flag for param in load_command(name).params for flag in param.opts}
        assert name == "completion" or options.issuperset({"--quiet", "--verbose", "--color", "--progress"})
