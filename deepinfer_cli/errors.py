"""Every expected failure: one sentence, a hint, an exit code. A traceback is our bug.

Exit codes (docs/reference/cli.md):
    0   everything asked for was done
    1   fatal while running: engine lost, disk full, out of memory, a hang, a cut archive
    2   refused before any row ran: usage, configuration, input, model file
    3   finished, but some rows (or cells, or samples) failed
    4   `eval --min-score` not reached
    130 interrupted (SIGINT); 143 terminated (SIGTERM); 141 the reader of stdout went away
"""

from __future__ import annotations

import sys
from typing import Final

EXIT_OK: Final = 0
EXIT_FATAL: Final = 1
EXIT_REFUSED: Final = 2
EXIT_ROWS_FAILED: Final = 3
EXIT_SCORE_MISSED: Final = 4
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
EXIT_TERMINATED: Final = 143


class DeepInferError(Exception):
    """A failure that the user can understand: shown as `error: MESSAGE` and, if given, `hint: HINT`."""

    exit_code: int = EXIT_FATAL

    def __init__(self, message: str, hint: str | None = None, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code


class UsageError(DeepInferError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = EXIT_REFUSED


class ConfigError(DeepInferError):
    """A setting is unknown, mistyped or out of range; the message starts with where it was written."""

    exit_code = EXIT_REFUSED


class InputError(DeepInferError):
    """The input files are refused as a whole before any row ran."""

    exit_code = EXIT_REFUSED


class ModelError(DeepInferError):
    """A model cannot be found, or its files are damaged or not supported."""

    exit_code = EXIT_REFUSED


class ResourceError(DeepInferError):
    """Memory, disk or another resource does not suffice; the hint names the setting that shrinks the need."""


class OutputError(DeepInferError):
    """A result could not be written: disk full, device gone."""


class EngineError(DeepInferError):
    """The engine stopped working; rows written so far stay valid."""


class InternalError(DeepInferError):
    """A defect of deepinfer itself."""


class Interrupted(DeepInferError):
    """Stopped by SIGINT after what was running was written."""

    exit_code = EXIT_INTERRUPTED


class Terminated(DeepInferError):
    """Stopped by SIGTERM after what was running was written."""

    exit_code = EXIT_TERMINATED


MAX_QUOTED_CHARS: Final = 300


def in_short(text: str) -> str:
    """One line of bounded length, for words that came out of somebody's file."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_QUOTED_CHARS else text[: MAX_QUOTED_CHARS - 3] + "..."


REPORT_HINT: Final = "this is a defect of deepinfer; run again with DEEPINFER_DEBUG=1 to see where"

# The code in args[1] of a native error (native/include/deepinfer/status.h) to what the user is told.
_NATIVE_CODES: Final[dict[str, type[DeepInferError]]] = {
    "bad_file": ModelError,
    "unsupported": ModelError,
    "bad_request": UsageError,
    "resource": ResourceError,
    "internal": InternalError,
}


def is_native_error(error: BaseException) -> bool:
    """Whether `error` came out of the native core. Does not import it: it may be what is missing."""
    native = sys.modules.get("deepinfer_cli._native")
    native_type = getattr(native, "NativeError", None)
    return isinstance(native_type, type) and isinstance(error, native_type)


def from_native(error: BaseException) -> DeepInferError:
    """The same failure as a member of this tree. `error` is a NativeError: args are (message, code)."""
    message = str(error.args[0]) if error.args else str(error)
    code = str(error.args[1]) if len(error.args) > 1 else "internal"
    kind = _NATIVE_CODES.get(code, InternalError)
    return kind(message, REPORT_HINT if kind is InternalError else None)


def _os_message(error: OSError) -> str:
    reason = (error.strerror or str(error) or type(error).__name__).strip()
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' -> '.join(names)}: {reason}" if names else reason


def describe(error: BaseException) -> DeepInferError:
    """Any exception as the sentence, hint and exit code that the user gets."""
    if isinstance(error, DeepInferError):
        return error
    if is_native_error(error):
        return from_native(error)
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("interrupted")
    if isinstance(error, MemoryError):
        return ResourceError("out of memory", "lower --max-num-seqs, --max-model-len or --kv-cache-bytes")
    if isinstance(error, OSError):
        return DeepInferError(_os_message(error))
    return InternalError(f"unexpected {type(error).__name__}: {error}", REPORT_HINT)
