"""Row ids: exact echo, one canonical key per id, generated ids, and the effective seed."""

from __future__ import annotations

import hashlib
import json
import re

from deepinfer_cli.requests.types import FieldError

SEED_MAX = 2**63 - 1

_SEPARATORS = {0x2028: "\\u2028", 0x2029: "\\u2029", 0x85: "\\u0085"}
_ESCAPE = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)


def splice(raw: bytes) -> str:
    """Exact JSON text of a value for the output: only the three line-like characters become escapes (they
    can stand in strings alone), and a carriage return between tokens becomes a space."""
    text = raw.decode()
    if "\r" in text:
        text = text.replace("\r", " ")
    if not text.isascii():
        text = text.translate(_SEPARATORS)
    return text


def replace_lone_surrogates(line: bytes) -> bytes:
    """Lone surrogate escapes become \\ufffd; pairs and every other byte stay."""

    def fix(match: re.Match[bytes]) -> bytes:
        return b"\\ufffd" if match.group(2) else match.group(0)

    return _ESCAPE.sub(fix, line)


def id_key(raw: bytes, field: str) -> bytes | None:
    """Canonical bytes of an id: equal for equal ids, distinct for 7 and "7". None for null."""
    first = raw[:1]
    if first == b'"':
        if b"\\" in raw:
            return b"s" + str(json.loads(raw)).encode()
        return b"s" + raw[1:-1]
    if raw == b"null":
        return None
    if first in b"-0123456789" and not any(c in raw for c in b".eE"):
        return b"i0" if raw == b"-0" else b"i" + raw
    raise FieldError("bad_param", f"{field} must be a string or an integer", field)


def content_hash(line: bytes) -> bytes:
    """8 bytes over the line without surrounding white space."""
    return hashlib.blake2b(line.strip(), digest_size=8, person=b"di-row").digest()


def effective_seed(run_seed: int, key: bytes) -> int:
    """Seed of a row that gives none: a function of (run seed, row id) and nothing else."""
    digest = hashlib.blake2b(run_seed.to_bytes(8, "little") + key, digest_size=8, person=b"di-seed").digest()
    return int.from_bytes(digest, "little") & SEED_MAX


def request_hash(settings_digest: bytes, line: bytes) -> str:
    """16 hex digits over the row's bytes and the run settings its parameters are resolved with: equal
    hashes mean the same prompt, parameters and constraint."""
    return hashlib.blake2b(line.strip(), digest_size=8, key=settings_digest, person=b"di-req").hexdigest()
