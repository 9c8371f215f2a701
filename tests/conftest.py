"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.small_model import small_model as small_model_file


@pytest.fixture(scope="session")
def small_model() -> Path:
    """The small model's GGUF file."""
    return small_model_file()


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where generated models are kept for the session."""
    return tmp_path_factory.mktemp("tiny-models")
