"""Fuzzes what users ask of texts: regular expressions, JSON Schemas, grammars in four notations.

    python -m tests.torture.fuzz_constraints --seconds 600

What is taken goes all the way: the engine compiles it, and texts drawn under its mask must pass the check
that finished texts get.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, get_args

from deepinfer_cli.config.settings import GrammarSyntax
from deepinfer_cli.constraints.front import prepare
from deepinfer_cli.constraints.types import (
    CheckSpec,
    ConstraintError,
    ConstraintOptions,
    ConstraintSpec,
)
from deepinfer_cli.constraints.validate import check_text
from deepinfer_cli.errors import InputError, in_short
from tests.support.byte_engine import ByteEngine, NothingFits
from tests.support.grammar_samples import SAMPLES
from tests.support.random_grammars import random_grammar
from tests.torture import mutate
from tests.torture.fuzzing import main

_SYNTAXES = get_args(GrammarSyntax)
MAX_SECONDS = 1.0  # processor time of the front
CHECK_SECONDS = 3  # of processor time; a run gives each row less
NUM_WALKS = 4
WALK_BYTES = 40

PATTERNS = (
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    r"(?i:yes|no|maybe)( really){0,3}!?",
    r"^\d+(\.\d{1,2})?$",
    r"(?=.*[0-9])[a-z0-9]{4,8}",
    r"(?!admin)[a-z]{3,8}",
    r"[^\s\"'\\]+?(?:,\s?\w+)*",
    r"(?s:.{1,5})|\u00e9[\u00e0-\u00ff]|\x41\t",
    r"(?P<a>a|b)*(?:c{2,}|d{,3})+",
    r"((a*)*)*b|[\]\-^]",
)
PATTERN_WORDS = (
    *(
        "(",
        ")",
        "(?:",
        "(?=",
        "(?!",
        "(?<=",
        "(?<!",
        "(?P<x>",
        "(?P=x)",
        "(?i)",
        "(?s)",
        "(?x)",
        "(?m:",
        "(?>",
    ),
    *("[", "]", "[^", "-", "^", "$", ".", "|", "*", "+", "?", "*?", "++", "{", "}", "{2}", "{,3}", "{2,}"),
    *(
        "{0,1000}",
        "{99999}",
        r"\d",
        r"\W",
        r"\s",
        r"\b",
        r"\B",
        r"\A",
        r"\Z",
        r"\1",
        r"\p{L}",
        r"\x41",
        r"\u00e9",
    ),
    *(r"\x41", r"\u00e9", r"\N{BULLET}", r"\0", "\\", "ß", "ſ", "İ", "ǅ", "\n", "\0", "😀", "#", " "),
)
SCHEMAS: tuple[Any, ...] = (
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "string"}}},
    {
        "type": "object",
        "properties": {"x": {"enum": ["a", 1, None]}, "y": {"const": {"k": [1.5]}}},
        "required": ["x"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "number", "multipleOf": 0.5}, "minItems": 1, "maxItems": 4},
    {"anyOf": [{"type": "string", "pattern": "^[a-z]+$", "maxLength": 5}, {"type": ["boolean", "null"]}]},
    {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node",
    },
    {"allOf": [{"type": "integer"}, {"minimum": -3, "exclusiveMaximum": 9}]},
    {"oneOf": [{"type": "string", "format": "date"}, {"type": "integer", "maximum": 7}]},
    {"type": "array", "prefixItems": [{"type": "string"}, {}], "items": False},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "maxProperties": 3},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "null"}]},
)
KEYWORDS = (
    *("type", "properties", "required", "items", "prefixItems", "enum", "const", "anyOf", "oneOf", "allOf"),
    *("not", "if", "then", "else", "$ref", "$defs", "$id", "$anchor", "$schema", "pattern", "format"),
    *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "multipleOf", "minItems"),
    *("maxItems", "uniqueItems", "contains", "additionalProperties", "patternProperties", "propertyNames"),
    *("minProperties", "dependentRequired", "unevaluatedProperties", "require", "title", "default"),
)
GRAMMAR_WORDS = (
    *("::=", "=", ":", ";", ".", ",", "|", "(", ")", "[", "]", "{", "}", "*", "+", "?", "-", "^", "~", "!"),
    *('"', "'", "\\", "/", "//", "#", "#x41", "(*", "*)", "/*", "*/", "(/", "/)", "(:", ":)", "[wfc: x ]"),
    *("{2,3}", "{0}", "{9999}", "3 *", "root", "start", "x", "\n", "\t", "\0", "é", "😀", '"a"', "[a-z]"),
    *("%ignore", "%import common.INT", "%json", "<|x|>", "@x", "->", "\\u0041", "\\x", "i", "&", "~2..3"),
    *("\nroot ::= ", "\nx ::= ", "\nx = ", "\nx: ", "\nX: "),
)
_LARK = (
    'start: greeting " " NAME ("," " " NAME)*\ngreeting: "hello" | "bye"i\nNAME: /[A-Z][a-z]{1,8}/\n',
    'start: item+\nitem: "[" item* "]" | WORD\nWORD: /[a-c]+/ & ~/ab/\n%ignore /[ \\n]+/\n',
    '%import common.INT -> N\nstart: N (op N)~1..3\nop: /[-+]/ | X{0,2}\nX: "x"\n',
)


def run(kind: str, source: str, syntax: str = "auto") -> None:
    """Refused in time and by name, or taken: then the engine must hold to it."""
    started = time.process_time()
    try:
        prepared = prepare(ConstraintSpec(kind, source, syntax), ConstraintOptions())
    except ConstraintError as error:
        _in_time(started)
        raise InputError(error.message) from None
    _in_time(started)
    rng = random.Random(zlib.crc32(source.encode("utf-8", "surrogatepass")))
    try:
        engine = ByteEngine(prepared.grammar)
        texts = [engine.walk(rng, WALK_BYTES) for _ in range(NUM_WALKS)]
    except NothingFits as error:
        assert kind != "grammar", "no text fits, which the front should have seen"
        raise InputError(in_short(str(error))) from None
    except ValueError as error:  # too large for it; the run says so before the row begins, or ends that row
        raise InputError(in_short(str(error))) from None
    found = _not_valid(prepared.check, [text.decode() for text in texts if text is not None])
    assert found is None, found


def _not_valid(check: CheckSpec, texts: Sequence[str]) -> str | None:
    """The first text that does not pass, by a process that the kernel ends: patterns backtrack for ever."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (CHECK_SECONDS, CHECK_SECONDS))
        for text in texts:
            verdict = check_text(check, text)
            if verdict.outcome not in ("valid", "timeout"):
                os.write(
                    write_end, f"{text!r} was let through: {verdict.outcome}, {verdict.message}".encode()
                )
                break
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return said or None


def _in_time(started: float) -> None:
    seconds = time.process_time() - started
    assert seconds < MAX_SECONDS, f"the front took {seconds:.1f} s"


def pattern(data: bytes) -> None:
    run("regex", data.decode("utf-8", "surrogatepass"))


def make_pattern(rng: random.Random) -> bytes:
    return mutate.text(rng, PATTERNS, PATTERN_WORDS, 2000).encode("utf-8", "surrogatepass")


def schema(data: bytes) -> None:
    run("json_schema", data.decode("utf-8", "surrogatepass"))


def make_schema(rng: random.Random) -> bytes:
    made = mutate.value(rng, rng.choice(SCHEMAS))
    holders = [part for part in _parts(made) if isinstance(part, dict)]
    for _ in range(rng.randint(0, 3)):
        if holders:
            other = rng.choice(_parts(rng.choice(SCHEMAS)))
            rng.choice(holders)[rng.choice(KEYWORDS)] = rng.choice((other, *mutate.ODD_VALUES))
    text = json.dumps(made)
    if rng.random() < 0.1:
        text = mutate.text(rng, (text,), ("{", "}", "[", "]", ",", '"', "\\", "\0", "9" * 5000), len(text))
    return text.encode("utf-8", "surrogatepass")


def _parts(document: Any) -> list[Any]:
    found = [document]
    for part in found[:500]:
        if isinstance(part, (dict, list)):
            found.extend(part.values() if isinstance(part, dict) else part)
    return [json.loads(json.dumps(part)) if part is not document else part for part in found]


def grammar(data: bytes) -> None:
    """ "SYNTAX\\n" and the grammar."""
    syntax, _, text = data.decode("utf-8", "surrogatepass").partition("\n")
    run("grammar", text, syntax)


def _grammar_maker(syntax: str) -> Callable[[random.Random], bytes]:
    seeds = [*_LARK] if syntax == "lark" else [s.grammar for s in SAMPLES if s.syntax == syntax]

    def make(rng: random.Random) -> bytes:
        named = syntax if rng.random() < 0.9 else rng.choice(_SYNTAXES)
        if syntax == "gbnf" and rng.random() < 0.3:
            seed = random_grammar(rng).text
            text = seed if rng.random() < 0.5 else mutate.text(rng, (seed,), GRAMMAR_WORDS, 4000)
        else:
            text = mutate.text(rng, seeds, GRAMMAR_WORDS, 6000)
        return f"{named}\n{text}".encode("utf-8", "surrogatepass")

    return make


TARGETS = {
    "pattern": (pattern, make_pattern),
    "schema": (schema, make_schema),
    **{f"grammar_{syntax}": (grammar, _grammar_maker(syntax)) for syntax in _SYNTAXES if syntax != "auto"},
}

if __name__ == "__main__":
    sys.exit(main(__doc__, TARGETS))
