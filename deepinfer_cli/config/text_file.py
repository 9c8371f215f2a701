"""Small text files that the user names."""

from __future__ import annotations

from pathlib import Path

from deepinfer_cli.errors import ConfigError


def read_text_file(path: str, what: str, max_bytes: int) -> str:
    """The whole file, without a byte order mark. `what` names it in a ConfigError."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {path}: {error.strerror}") from None
    if len(data) > max_bytes:
        raise ConfigError(f"the {what} {path} has more than {max_bytes:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not valid UTF-8") from None
