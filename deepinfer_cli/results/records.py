"""Output rows read back: just enough of each to know which input row it answers and whether it stands."""

from __future__ import annotations

from dataclasses import dataclass

from deepinfer_cli.requests.scan import scan_row
from deepinfer_cli.results.lines import BadRecord

RECORD_START = b'{"id":'  # of both output formats
RESUME_KEY = "deepinfer"  # of a row in OpenAI's shape: the object in `body` that holds what native rows have
_MAX_DEPTH = 1 << 20  # a value under a recursive schema nests as deep as its text is long


@dataclass(frozen=True, slots=True)
class Record:
    """One output row. Byte fields are exact JSON text."""

    line: bytes  # without the newline
    index: int
    id_json: bytes
    request_hash: str
    settings: str
    failed: bool
    retryable: bool
    has_source: bool
    fields: dict[str, bytes]  # of the row; of `response.body` in OpenAI's shape

    def answers(self, index: int, id_json: str | None, request_hash: str) -> bool:
        return (
            self.index == index
            and self.request_hash == request_hash
            and self.id_json == (id_json or "null").encode()
        )


def _fields(text: bytes, what: str) -> dict[str, bytes]:
    scan = scan_row(text, _MAX_DEPTH)
    if scan.error is not None:
        where = f"column {scan.column}: " if scan.column else ""
        raise BadRecord(f"{what}{where}{scan.message}")
    return {key: text[start:end] for key, start, end in scan.fields}


def _need(fields: dict[str, bytes], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key not in fields:
            raise BadRecord(f"it has no {key}")


def _text(fields: dict[str, bytes], key: str) -> str:
    value = fields.get(key, b"")
    if len(value) < 2 or value[:1] != b'"':
        raise BadRecord(f"it has no {key}")
    return value[1:-1].decode()


def _index(fields: dict[str, bytes]) -> int:
    value = fields.get("index", b"")
    if not value.isdigit() or len(value) > 18:
        raise BadRecord("it has no index")
    return int(value)


def parse_record(line: bytes) -> Record:
    fields = _fields(line, "")
    if "custom_id" in fields and "response" in fields:
        return _parse_openai(line, fields)
    status = _text(fields, "status")
    if status not in ("ok", "error") or "id" not in fields:
        raise BadRecord("it has no id or no status")
    failed = status == "error"
    _need(fields, ("error", "warnings") if failed else ("outputs", "usage", "warnings"))
    error = _fields(fields["error"], "error: ") if failed else {}
    return Record(
        line,
        _index(fields),
        fields["id"],
        _text(fields, "request_hash"),
        _text(fields, "settings"),
        failed,
        error.get("retryable") == b"true",
        "source" in fields,
        fields,
    )


def _parse_openai(line: bytes, outer: dict[str, bytes]) -> Record:
    body = _fields(_fields(outer["response"], "response: ").get("body", b""), "body: ")
    if RESUME_KEY not in body:
        raise BadRecord(f"its body has no {RESUME_KEY}")
    failed = "error" in body
    _need(body, () if failed else ("choices", "usage"))
    own = _fields(body[RESUME_KEY], f"{RESUME_KEY}: ")
    return Record(
        line,
        _index(own),
        outer["custom_id"],
        _text(own, "request_hash"),
        _text(own, "settings"),
        failed,
        own.get("retryable") == b"true",
        "source" in own,
        body,
    )
