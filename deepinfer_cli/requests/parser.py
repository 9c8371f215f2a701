"""Bytes of a line to a RequestRow or a FailedRow: every defect of a row ends here as data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from deepinfer_cli.constraints.fields import Reader, SpellingError
from deepinfer_cli.constraints.types import ConstraintSpec
from deepinfer_cli.requests import fields as known
from deepinfer_cli.requests import ids
from deepinfer_cli.requests.limits import check_num_values, in_short
from deepinfer_cli.requests.params import SEED, check_vocabulary, resolve
from deepinfer_cli.requests.prompt_fields import prompt_input
from deepinfer_cli.requests.scan import RowScan, RowTable, scan_row
from deepinfer_cli.requests.template_rows import RowTemplate
from deepinfer_cli.requests.types import (
    FailedRow,
    FieldError,
    ParsedRow,
    RawLine,
    RequestRow,
    RowError,
    RowIdentity,
    RowRules,
    SamplingValues,
    SkippedRow,
)

Warn = Callable[[str, str], None]  # (key that makes it once per run, sentence)
_Raw = dict[str, bytes]

_SOURCES = frozenset(("prompt", "prompt_token_ids", "messages"))
_PROMPT = frozenset((*known.PROMPT_FIELDS, *known.TOOL_FIELDS))
_SAMPLING = frozenset(known.SAMPLING_FIELDS)
_CONSTRAINTS = frozenset(known.CONSTRAINT_FIELDS)
_ENVELOPE = frozenset(known.ENVELOPE_FIELDS)
_CHAT_URL, _TEXT_URL = "/v1/chat/completions", "/v1/completions"
_MAX_WARNED_KEYS = 50
_MAX_KEY_CHARS = 100  # a longer one is no slip of the pen
_PARAM_CACHE_ENTRIES = 4096
_PARAM_CACHE_BYTES = 512  # of raw values; longer sets are resolved anew
_VALUE_BITS = 39  # of the id table's values: file number above, line below


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


_decode = json.JSONDecoder(parse_float=_finite).decode


def decode_value(raw: bytes, field: str) -> Any:
    """A value whose syntax the scanner has already accepted; numbers beyond what can be held are refused."""
    check_num_values(raw, field)
    try:
        return _decode(raw.decode())
    except ValueError as error:
        raise FieldError("bad_param", f"{field}: {error}", field) from None


def _members(raw: bytes) -> _Raw:
    """The exact text of each member of an object, whose syntax the scanner has already accepted."""
    return {key: raw[start:end] for key, start, end in scan_row(raw).fields}


class RowParser:
    """One per run: it holds the ids seen so far and what has been warned about."""

    def __init__(self, rules: RowRules, ids_seen: RowTable, occurrences: RowTable, warn: Warn) -> None:
        self._rules = rules
        self._ids_seen = ids_seen
        self._occurrences = occurrences
        self._warn = warn
        self._template = RowTemplate(rules.template_text) if rules.template_text is not None else None
        self._suggestions: dict[str, str | None] = {}  # unknown key -> what it was meant to be
        self._warned: set[str] = set()  # unknown keys that were told
        self._params: dict[tuple[tuple[str, bytes], ...], SamplingValues] = {}
        self._passthrough_all = "all" in rules.passthrough
        self._constraints = Reader(decode_value, _members, rules.grammar_syntax)
        self._line_bits = _VALUE_BITS - len(rules.file_names).bit_length()

    def parse(self, raw: RawLine) -> ParsedRow:
        shard = self._rules.shard
        skipped = shard is not None and raw.index % shard[1] != shard[0]
        if raw.data is None:
            if skipped:
                return SkippedRow("shard")
            error = RowError("row_too_large", f"the row has {raw.num_bytes:,} bytes; raise --max-row-bytes")
            return FailedRow(self._identity(raw, None), error)
        line, scan, warnings = self._scan(raw.data)
        if skipped:
            if scan.error is None:
                self._register_only(raw, line, scan)
            return SkippedRow("shard")
        if scan.error is not None:
            self._hint_at_format(raw)
            return FailedRow(self._identity(raw, None), _scan_error(scan))
        return self._parse_fields(raw, {k: line[s:e] for k, s, e in scan.fields}, warnings)

    def identity(self, raw: RawLine) -> RowIdentity:
        """Of a row that could not be read: its place and its hash."""
        return self._identity(raw, None)

    def _hint_at_format(self, raw: RawLine) -> None:
        """Files of another format fail in every line: say why once, with a way out."""
        start = (raw.data or b"").lstrip()
        if raw.index > 0 or not start:
            return
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            hint = "the input is UTF-16; convert it: iconv -f UTF-16 -t UTF-8 IN > OUT.jsonl"
        elif start.startswith(b"["):
            hint = "the input looks like one JSON array; convert it: jq -c '.[]' IN > OUT.jsonl"
        elif start.rstrip() == b"{":
            hint = "the input looks like JSON over several lines; convert it: jq -c . IN > OUT.jsonl"
        elif not start.startswith(b"{"):
            hint = "the first line is no JSON object; for plain text: jq -Rc '{prompt: .}' IN > OUT.jsonl"
        else:
            return
        self._warn("format", hint)

    def _scan(self, data: bytes) -> tuple[bytes, RowScan, tuple[str, ...]]:
        scan = scan_row(data)
        if not scan.has_lone_surrogate or scan.error is not None:
            return data, scan, ()
        data = ids.replace_lone_surrogates(data)
        return data, scan_row(data), ("replaced_surrogate",)

    def _register_only(self, raw: RawLine, line: bytes, scan: RowScan) -> None:
        """Another shard's row: its id still counts, so that every shard sees the same duplicates."""
        fields = {k: line[s:e] for k, s, e in scan.fields if k in ("id", "custom_id")}
        try:
            self._row_id(raw, fields)
        except FieldError:
            pass

    def _parse_fields(self, raw: RawLine, fields: _Raw, warnings: tuple[str, ...]) -> ParsedRow:
        id_json: str | None = None
        url: str | None = None
        generated = False
        failed: FieldError | None = None
        key = b""
        first = -1
        body, prefix = fields, ""
        try:
            id_json, key, first, generated = self._row_id(raw, fields)
            if self._is_envelope(fields):
                if generated:
                    warnings = (*warnings, "generated_id")
                url = self._envelope_url(fields)
                body, prefix = self._body(fields), "body."
        except FieldError as error:
            failed = error
        identity = self._identity(raw, id_json, fields, body, generated=generated, url=url)
        if failed is not None:
            return FailedRow(identity, failed.error, warnings)
        if first >= 0 and self._rules.on_duplicate != "keep":
            if self._rules.on_duplicate == "first":
                return SkippedRow("duplicate")
            where = self._place(first)
            return FailedRow(
                identity, RowError("duplicate_id", f"the id was first used {where}", "id"), warnings
            )
        try:
            return self._request(raw, identity, body, key, prefix, warnings)
        except FieldError as error:
            return FailedRow(identity, error.error, warnings)

    def _request(
        self,
        raw: RawLine,
        identity: RowIdentity,
        body: _Raw,
        key: bytes,
        prefix: str,
        warnings: tuple[str, ...],
    ) -> RequestRow:
        rules = self._rules
        assert raw.data is not None
        foreign = not prefix and (rules.prompt_field is not None or self._template is not None)
        groups: tuple[_Raw, _Raw, _Raw] = ({}, {}, {})
        prompt_raw, sampling_raw, constraint_raw = groups
        seed_raw: _Raw = {}
        for name, value in body.items():
            if name in _SAMPLING:
                sampling_raw[name] = value
            elif name in _PROMPT:
                prompt_raw[name] = value
            elif name in known.SEED_FIELDS:
                seed_raw[name] = value
            elif name in _CONSTRAINTS:
                constraint_raw[name] = value
            else:
                self._other_field(name, value, prefix)
        if prefix:
            self._other_fields_of_envelope(identity, prompt_raw)
        values = {name: decode_value(value, prefix + name) for name, value in prompt_raw.items()}
        if foreign:
            self._foreign_prompt(raw, body, values)
        prompt = prompt_input(values, rules, prefix)
        params = self._sampling(sampling_raw, prefix)
        constraint = self._constraint(constraint_raw, prefix) if constraint_raw else rules.constraint
        if rules.system is not None and prompt.messages is None and not prompt.chat:
            self._warn("raw-system", "`system` has no place in raw prompts; use messages or --chat")
        return RequestRow(
            identity,
            prompt,
            params,
            self._seed(seed_raw, key, prefix),
            warnings,
            prefix,
            constraint,
        )

    # ---- identity ------------------------------------------------------------------------------------------

    def _row_id(self, raw: RawLine, fields: Mapping[str, bytes]) -> tuple[str, bytes, int, bool]:
        """(JSON text of the id, canonical key, where it was first used or -1, whether it was generated)."""
        assert raw.data is not None
        found: tuple[str, bytes] | None = None
        for name in ("id", "custom_id"):
            value = fields.get(name)
            key = ids.id_key(value, name) if value is not None else None
            if key is None or value is None:
                continue
            if found is not None and found[1] != key:
                raise FieldError("bad_param", "id and custom_id disagree", "custom_id")
            found = found or (ids.splice(value), key)
        generated = found is None
        if found is None:
            content = ids.content_hash(raw.data)
            name = f"row-{content.hex()}-{self._occurrences.increment(content)}"
            found = (f'"{name}"', b"s" + name.encode())
        id_json, key = found
        if self._rules.id_prefix_files is not None:
            prefix = self._rules.id_prefix_files[raw.file_number]
            text = prefix + ":" + (json.loads(id_json) if key[:1] == b"s" else id_json)
            id_json, key = ids.splice(json.dumps(text, ensure_ascii=False).encode()), b"s" + text.encode()
        first = -1
        if not generated:
            line = min(raw.line, (1 << self._line_bits) - 1)
            first = self._ids_seen.insert(key, (raw.file_number << self._line_bits) | line)
        return id_json, key, first, generated

    def _place(self, packed: int) -> str:
        line = packed & ((1 << self._line_bits) - 1)
        if len(self._rules.file_names) > 1:
            return f"on line {line} of {self._rules.file_names[packed >> self._line_bits]}"
        return f"on line {line}"

    def _identity(
        self,
        raw: RawLine,
        id_json: str | None,
        fields: _Raw | None = None,
        body: _Raw | None = None,
        *,
        generated: bool = False,
        url: str | None = None,
    ) -> RowIdentity:
        metadata = columns = None
        if fields:
            value = fields.get("metadata")
            if value is None and body is not None and body is not fields:
                value = body.get("metadata")
            metadata = ids.splice(value) if value is not None else None
            if self._rules.passthrough:
                columns = self._columns(fields)
        digest = self._rules.settings_digest
        return RowIdentity(
            index=raw.index,
            line=raw.line,
            file_number=raw.file_number,
            id_json=id_json,
            id_generated=generated,
            metadata_json=metadata,
            columns_json=columns,
            request_hash=ids.request_hash(digest, raw.digest if raw.data is None else raw.data),
            envelope_url=url,
        )

    def _columns(self, fields: _Raw) -> str:
        if self._passthrough_all:
            hidden = known.KNOWN_FIELDS if "body" not in fields else known.KNOWN_FIELDS | _ENVELOPE
            names = [name for name in fields if name not in hidden]
        else:
            names = [name for name in self._rules.passthrough if name in fields]
        pairs = (f"{json.dumps(name)}:{ids.splice(fields[name])}" for name in names)
        return "{" + ",".join(pairs) + "}"

    def _seed(self, seed_raw: _Raw, key: bytes, prefix: str) -> int:
        given: int | None = None
        for name, value in seed_raw.items():
            decoded = decode_value(value, prefix + name)
            if decoded is None:
                continue
            seed: int = SEED.check(prefix + name, decoded)
            if given is not None and given != seed:
                raise FieldError("bad_param", "seed and seq_seed disagree", prefix + name)
            given = seed
        return ids.effective_seed(self._rules.run_seed, key) if given is None else given

    # ---- fields --------------------------------------------------------------------------------------------

    def _sampling(self, raw: _Raw, prefix: str) -> SamplingValues:
        if not raw:
            return self._rules.defaults
        cache_key = (*raw.items(), (prefix, b""))
        params = self._params.get(cache_key)
        if params is None:
            values = {name: decode_value(value, prefix + name) for name, value in raw.items()}
            params = resolve(values, self._rules.defaults, prefix)
            if self._rules.vocab_size is not None:
                check_vocabulary(params, self._rules.vocab_size, prefix)
            if sum(map(len, raw.values())) <= _PARAM_CACHE_BYTES:
                if len(self._params) >= _PARAM_CACHE_ENTRIES:
                    self._params.clear()
                self._params[cache_key] = params
        return params

    def _constraint(self, raw: _Raw, prefix: str) -> ConstraintSpec | None:
        try:
            is_said, spec = self._constraints.row(raw, prefix)
        except SpellingError as error:
            raise FieldError(error.code, error.message, error.field) from None
        return spec if is_said else self._rules.constraint

    def _other_field(self, name: str, value: bytes, prefix: str) -> None:
        """A key that is neither prompt, sampling, seed nor constraint."""
        if name in known.IDENTITY_FIELDS:
            return
        if name in known.REFUSED_FIELDS:
            if decode_value(value, prefix + name) not in known.REFUSED_FIELDS[name]:
                raise FieldError("bad_param", f"{prefix}{name} is not supported", prefix + name)
            return
        if name == "model":
            self._check_model(value, prefix)
            return
        if name in known.IGNORED_FIELDS:
            return
        rules = self._rules
        if name == rules.prompt_field and not prefix:
            return
        meant = self._meant(name)
        if meant is not None:
            name = in_short(name)
            message = f"{prefix}{name} is unknown; did you mean {meant}?"
            raise FieldError("unknown_field", message, prefix + name)
        if not prefix and (self._passthrough_all or name in rules.passthrough):
            return
        if self._template is not None and not prefix:
            return
        if rules.strict:
            name = in_short(name)
            raise FieldError("unknown_field", f"{prefix}{name} is unknown (--strict)", prefix + name)
        self._warn_unknown(name)

    def _warn_unknown(self, name: str) -> None:
        if name[:_MAX_KEY_CHARS] in self._warned or len(self._warned) > _MAX_WARNED_KEYS:
            return
        self._warned.add(name[:_MAX_KEY_CHARS])
        if len(self._warned) > _MAX_WARNED_KEYS:
            self._warn("unknown", "further unknown keys are ignored without being listed")
            return
        shown = name if len(name) <= 60 else name[:57] + "..."
        self._warn(f"unknown:{shown}", f"unknown key {shown!r} is ignored (--passthrough returns it)")

    def _meant(self, name: str) -> str | None:
        if len(name) > _MAX_KEY_CHARS:
            return None
        if name not in self._suggestions:
            if len(self._suggestions) > 10_000:  # keys that differ in every row: not worth remembering
                self._suggestions.clear()
            self._suggestions[name] = known.suggestion(name)
        return self._suggestions[name]

    def _check_model(self, value: bytes, prefix: str) -> None:
        wanted = self._rules.model_name
        named = decode_value(value, prefix + "model")
        if wanted is None or named is None or named == wanted:
            return
        named = in_short(str(named))
        if self._rules.strict:
            message = f"{prefix}model is {named!r}, but {wanted!r} is loaded (--strict)"
            raise FieldError("bad_param", message, prefix + "model")
        self._warn("model", f"rows name the model {named!r}; the loaded model answers ({wanted})")

    def _foreign_prompt(self, raw: RawLine, body: _Raw, values: dict[str, Any]) -> None:
        """--prompt-field and --template: somebody else's columns make the prompt."""
        for name in ("prompt", "prompt_token_ids", "messages"):
            values.pop(name, None)
        if self._template is not None:
            row = {name: decode_value(value, name) for name, value in body.items()}
            values["prompt"] = self._template.render(row)
            return
        name = self._rules.prompt_field or ""
        if name not in body:
            raise FieldError("missing_prompt", f"the row has no {name} (--prompt-field)", name)
        value = decode_value(body[name], name)
        is_messages = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
        if value is not None and not is_messages and not isinstance(value, str):
            raise FieldError("bad_param", f"{name} must be a string or a list of messages", name)
        values["messages" if is_messages else "prompt"] = value

    # ---- OpenAI envelopes ----------------------------------------------------------------------------------

    def _is_envelope(self, fields: _Raw) -> bool:
        """An OpenAI batch line, or what was clearly meant as one. Somebody's own columns may be called `url`
        and `body` too; where the prompt comes from columns, only an object counts as a body."""
        body = fields.get("body")
        if body is None:
            return False
        if self._template is not None or self._rules.prompt_field is not None:
            return body[:1] == b"{" and "url" in fields
        return "url" in fields or "method" in fields or (body[:1] == b"{" and _SOURCES.isdisjoint(fields))

    def _envelope_url(self, fields: _Raw) -> str:
        method = decode_value(fields.get("method", b"null"), "method")
        if method not in (None, "POST"):
            raise FieldError("bad_param", 'method must be "POST"', "method")
        url = decode_value(fields.get("url", b"null"), "url")
        if url not in (_CHAT_URL, _TEXT_URL):
            raise FieldError("bad_param", f"url must be {_CHAT_URL} or {_TEXT_URL}", "url")
        return str(url)

    def _body(self, fields: _Raw) -> _Raw:
        for name in fields:
            if name not in _ENVELOPE and name not in known.IDENTITY_FIELDS:
                if name in known.KNOWN_FIELDS:
                    raise FieldError("bad_param", f"{name} belongs into body", name)
                self._other_field(name, fields[name], "")
        raw = fields["body"]
        if raw[:1] != b"{":
            raise FieldError("bad_param", "body must be an object", "body")
        scan = scan_row(raw)
        if scan.error is not None:
            raise FieldError("bad_json", f"body: {scan.message}", "body")
        return {key: raw[start:end] for key, start, end in scan.fields}

    def _other_fields_of_envelope(self, identity: RowIdentity, prompt_raw: _Raw) -> None:
        name, wrong = ("messages", "prompt") if identity.envelope_url == _CHAT_URL else ("prompt", "messages")
        if wrong in prompt_raw and name not in prompt_raw:
            message = f"{identity.envelope_url} takes {name}, not {wrong}"
            raise FieldError("bad_param", message, f"body.{wrong}")


def _scan_error(scan: RowScan) -> RowError:
    where = f"column {scan.column}: " if scan.column else ""
    assert scan.error is not None
    return RowError(scan.error, where + scan.message)
