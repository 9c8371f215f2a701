"""`jsonschema` with its format checks, without the second of processor time that one of them takes to load.

Its check of the format `iri` builds a grammar when it is imported. Whoever needs jsonschema here imports it
through this module; the grammar is then built when the first IRI is checked.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_NAME = "rfc3987_syntax"
_lock = threading.Lock()


def load() -> Any:
    """The module `jsonschema`. From any thread."""
    with _lock:
        if "jsonschema" in sys.modules or _NAME in sys.modules or importlib.util.find_spec(_NAME) is None:
            return importlib.import_module("jsonschema")
        sys.modules[_NAME] = _stand_in()
        try:
            return importlib.import_module("jsonschema")
        finally:
            del sys.modules[_NAME]


def _stand_in() -> ModuleType:
    module = ModuleType(_NAME)

    def is_valid_syntax(rule: str, text: str) -> bool:
        return bool(importlib.import_module(_NAME).is_valid_syntax(rule, text))

    module.__dict__["is_valid_syntax"] = is_valid_syntax
    return module
