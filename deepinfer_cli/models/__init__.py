"""Finding, describing and loading models; one folder or file per family."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepinfer_cli.config.run_config import RunConfig
    from deepinfer_cli.models.types import LoadedModel


def load(config: RunConfig, say: Callable[[str], None] | None = None) -> LoadedModel:
    """The model that the settings name, or the small one when they name none."""
    from deepinfer_cli.models.loading import load_model

    return load_model(config, say)
