"""Fixtures shared by all tests."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from deepinfer_cli.config import load_jsonschema
from tests.support.small_model import small_model as small_model_file

load_jsonschema.load()  # before a test imports it the slow way


def pytest_configure() -> None:
    """Children get the signals a terminal would give them, also when the tests run in the background, where
    a shell has SIGINT ignored and every child would inherit that."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes begin first: begun last, one of them would keep one worker busy alone."""
    long = {item.path for item in items if any(map(item.get_closest_marker, ("oracle", "model", "slow")))}
    longest = {path for path in long if path.parent.name == "numerics"}
    items.sort(key=lambda item: (item.path not in longest, item.path not in long))


@pytest.fixture(scope="session")
def small_model() -> Path:
    """The small model's GGUF file."""
    return small_model_file()


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where generated models are kept for the session."""
    return tmp_path_factory.mktemp("tiny-models")
