"""Every way to ask for a constraint: four spellings in rows, and the run's own settings."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import GrammarSyntax
from deepinfer_cli.config.text_file import read_text_file
from deepinfer_cli.config.values import CONSTRAINT_KINDS
from deepinfer_cli.constraints.choice import MAX_CHOICES
from deepinfer_cli.constraints.types import ConstraintOptions, ConstraintSpec
from deepinfer_cli.errors import ConfigError, in_short

FIELDS: Final = ("response_format", "constraint", "structured_outputs", "so_args")
# What other tools call it, and what it is called here.
ELSEWHERE: Final[Mapping[str, str]] = {
    "guided_json": 'structured_outputs: {"json": ...}',
    "guided_regex": 'structured_outputs: {"regex": ...}',
    "guided_choice": 'structured_outputs: {"choice": ...}',
    "guided_grammar": 'structured_outputs: {"grammar": ...}',
    "guided_json_object": 'structured_outputs: {"json_object": true}',
    "guided_decoding_backend": "nothing: there is one engine",
    "guided_whitespace_pattern": "the run's json_whitespace",
    "structured_output": "structured_outputs",
    "ebnf": 'constraint: {"grammar": ...}',
    "choices": 'constraint: {"choice": [...]}',
}
MAX_BYTES: Final = 1 << 20  # of a schema or a grammar
RUN_KEYS: Final = ("constraint", "json_schema", "regex", "choice", "grammar")


class SpellingError(Exception):
    """The field does not say what it should; `field` is the path of what is wrong."""

    def __init__(self, code: str, message: str, field: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads fields from their JSON text, so that a schema stays what it was to the letter."""

    decode: Callable[[bytes, str], Any]  # (JSON text, field for messages) -> value
    members: Callable[[bytes], Mapping[str, bytes]]  # JSON text of an object -> JSON text of each member
    syntax: str = "auto"  # of grammars that do not say theirs

    def row(self, raw: Mapping[str, bytes], prefix: str = "") -> tuple[bool, ConstraintSpec | None]:
        """(the row says something, what it asks for). `raw`: the row's constraint fields. SpellingError, or
        what `decode` raises."""
        given = {name: value for name, value in raw.items() if value != b"null"}
        for name in given:
            if name in ELSEWHERE:
                message = f"{prefix}{name} is not known here; write {ELSEWHERE[name]}"
                raise SpellingError("unknown_field", message, prefix + name)
        says_text = False
        if "response_format" in given:
            spec = self._response_format(given.pop("response_format"), prefix + "response_format")
            says_text = spec is None
            if spec is not None:
                given = {"response_format": b"", **given}
        if len(given) > 1:
            names = [prefix + name for name in given]
            raise SpellingError("bad_param", f"give one of {' and '.join(names)}", names[1])
        if not given:
            return says_text, None
        name, value = next(iter(given.items()))
        field = prefix + name
        if name == "constraint":
            return True, self._constraint(value, field)
        if name == "structured_outputs":
            return True, self._structured_outputs(value, field)
        if name == "so_args":
            return True, self._so_args(value, field)
        return True, spec

    # ---- the four spellings -------------------------------------------------------------------------------

    def _constraint(self, raw: bytes, field: str) -> ConstraintSpec:
        members = self._object(raw, field, (*CONSTRAINT_KINDS, "grammar_syntax"))
        kind = self._one_of(members, CONSTRAINT_KINDS, field)
        return self._spec(kind, members[kind], f"{field}.{kind}", syntax=self._syntax(members, kind, field))

    def _structured_outputs(self, raw: bytes, field: str) -> ConstraintSpec:
        kinds = ("json", "regex", "choice", "grammar", "json_object")
        off = (
            "disable_any_whitespace",
            "disable_additional_properties",
            "whitespace_pattern",
            "structural_tag",
        )
        members = self._object(raw, field, (*kinds, *off, "disable_fallback"))
        for name in off:
            if members.get(name, b"null") not in (b"null", b"false"):
                message = f"{field}.{name} is not supported"
                if "whitespace" in name:
                    message += "; json_whitespace is a setting of the run"
                raise SpellingError("bad_param", message, f"{field}.{name}")
        if members.get("json_object") == b"false":
            del members["json_object"]
        kind = self._one_of(members, kinds, field)
        where = f"{field}.{kind}"
        if kind == "json":
            return self._spec("json_schema", members[kind], where, is_text_fine=True)
        return self._spec(kind, members[kind], where)

    def _so_args(self, raw: bytes, field: str) -> ConstraintSpec:
        kinds = ("regex", "json_schema", "ebnf")
        members = self._object(raw, field, kinds)
        kind = self._one_of(members, kinds, field)
        known = "grammar" if kind == "ebnf" else kind
        return self._spec(known, members[kind], f"{field}.{kind}", is_text_fine=True)

    def _response_format(self, raw: bytes, field: str) -> ConstraintSpec | None:
        members = self._object(raw, field, ("type", "json_schema"))
        types = ("text", "json_object", "json_schema")
        kind = self.decode(members.get("type", b"null"), f"{field}.type")
        if kind not in types:
            message = f'{field}.type must be "text", "json_object" or "json_schema"'
            raise SpellingError("bad_param", message, f"{field}.type")
        if kind != "json_schema":
            if "json_schema" in members:
                message = f'{field}.json_schema needs type: "json_schema", not "{kind}"'
                raise SpellingError("bad_param", message, f"{field}.json_schema")
            return None if kind == "text" else ConstraintSpec("json_object", "", field=f"{field}.type")
        where = f"{field}.json_schema"
        inner = self._object(
            members.get("json_schema", b"null"), where, ("name", "description", "schema", "strict")
        )
        for name, kinds, words in (
            ("name", str, "a string"),
            ("description", str, "a string"),
            ("strict", bool, "true or false; a schema is kept to either way"),
        ):
            value = self.decode(inner.get(name, b"null"), f"{where}.{name}")
            if value is not None and not isinstance(value, kinds):
                raise SpellingError("bad_param", f"{where}.{name} must be {words}", f"{where}.{name}")
        return self._spec("json_schema", inner.get("schema", b"null"), f"{where}.schema")

    # ---- their parts --------------------------------------------------------------------------------------

    def _object(self, raw: bytes, field: str, known: Sequence[str]) -> dict[str, bytes]:
        """Members that are not null."""
        if raw[:1] != b"{":
            raise SpellingError("bad_param", f"{field} must be an object", field)
        members = {name: value for name, value in self.members(raw).items() if value != b"null"}
        for name in members:
            if name not in known:
                close = difflib.get_close_matches(name[:100].lower(), known, n=1, cutoff=0.5)
                hint = f"did you mean {close[0]}?" if close else f"it takes {', '.join(known)}"
                where = f"{field}.{in_short(name)}"
                raise SpellingError("bad_param", f"{where} is unknown; {hint}", where)
        return members

    def _one_of(self, members: Mapping[str, bytes], kinds: Sequence[str], field: str) -> str:
        given = [kind for kind in kinds if kind in members]
        if len(given) != 1:
            raise SpellingError("bad_param", f"{field} must have exactly one of {', '.join(kinds)}", field)
        return given[0]

    def _syntax(self, members: Mapping[str, bytes], kind: str, field: str) -> str:
        if "grammar_syntax" not in members:
            return self.syntax
        where = f"{field}.grammar_syntax"
        if kind != "grammar":
            raise SpellingError("bad_param", f"{where} goes with grammar, not with {kind}", where)
        syntax = self.decode(members["grammar_syntax"], where)
        known = get_args(GrammarSyntax)
        if syntax not in known:
            raise SpellingError("bad_param", f"{where} must be one of {', '.join(known)}", where)
        return str(syntax)

    def _spec(
        self, kind: str, raw: bytes, field: str, *, syntax: str | None = None, is_text_fine: bool = False
    ) -> ConstraintSpec:
        if kind == "json_schema":
            return ConstraintSpec(kind, self._schema(raw, field, is_text_fine), field=field)
        if kind == "json_object":
            if raw != b"true":
                raise SpellingError("bad_param", f"{field} must be true", field)
            return ConstraintSpec(kind, "", field=field)
        if kind == "choice":
            return ConstraintSpec(kind, self._choices(raw, field), field=field)
        text = self._text(raw, field)
        if kind == "regex":
            return ConstraintSpec(kind, text, field=field)
        if len(text) > MAX_BYTES:
            raise SpellingError("bad_schema", f"{field} has more than {MAX_BYTES:,} bytes", field)
        return ConstraintSpec(kind, text, syntax or self.syntax, field)

    def _schema(self, raw: bytes, field: str, is_text_fine: bool) -> str:
        if len(raw) > MAX_BYTES:
            raise SpellingError("bad_schema", f"{field} has more than {MAX_BYTES:,} bytes", field)
        if raw[:1] == b'"' and is_text_fine:
            return self._text(raw, field)
        if raw[:1] != b"{" and raw not in (b"true", b"false"):
            text = ", or its JSON text" if is_text_fine else ""
            raise SpellingError(
                "bad_param", f"{field} must be a schema: an object, true or false{text}", field
            )
        return raw.decode()

    def _text(self, raw: bytes, field: str) -> str:
        text = self.decode(raw, field)
        if not isinstance(text, str) or not text:
            raise SpellingError("bad_param", f"{field} must be a string that is not empty", field)
        return text

    def _choices(self, raw: bytes, field: str) -> str:
        found = self.decode(raw, field)
        if not isinstance(found, list) or not found:
            raise SpellingError("bad_param", f"{field} must be a list of at least one string", field)
        if len(found) > MAX_CHOICES:
            raise SpellingError("bad_schema", f"{field} has more than {MAX_CHOICES:,} choices", field)
        for i, text in enumerate(found):
            if not isinstance(text, str):
                raise SpellingError("bad_param", f"{field}[{i}] must be a string", f"{field}[{i}]")
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


# ---- the run's settings ------------------------------------------------------------------------------------


def run_options(config: RunConfig) -> ConstraintOptions:
    settings = config.constraints
    return ConstraintOptions(settings.json_whitespace, settings.schema_best_effort)


def run_constraint(config: RunConfig) -> ConstraintSpec | None:
    """What the run asks of rows that say nothing themselves. ConfigError: it cannot be read."""
    given = next((key for key in RUN_KEYS if config.get(key) not in (None, ())), None)
    if given is None:
        return None
    value = config.get(given)
    where = str(config.origin(given))
    if given in ("json_schema", "grammar"):
        value = read_text_file(value, f"{given} file", MAX_BYTES)
    syntax = config.constraints.grammar_syntax
    if given == "constraint":
        try:
            return _of_object(value, syntax)
        except SpellingError as error:
            raise ConfigError(f"{where}: {error.message}") from None
    if given == "choice":
        value = json.dumps(list(value), ensure_ascii=False)
    return ConstraintSpec(given, value, syntax if given == "grammar" else "auto", given)


def _of_object(value: Any, syntax: str) -> ConstraintSpec:
    def members(raw: bytes) -> dict[str, bytes]:
        return {name: _as_raw(member) for name, member in json.loads(raw).items()}

    _, spec = Reader(lambda raw, _: json.loads(raw), members, syntax).row({"constraint": _as_raw(value)})
    assert spec is not None
    return spec


def _as_raw(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
