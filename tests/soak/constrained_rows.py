"""2,000 rows under 200 schemas on a real model: every complete text is valid, and company changes no byte.

    python -m tests.soak.constrained_rows MODEL [--rows 2000] [--alone 200] [--output FILE.json]

All rows run at temperature 1 with 64 in flight. Texts of `ok` rows are validated once more with jsonschema,
here. Then some of the rows run again, one at a time, in another order and without the prefix cache, and must
give the same lines.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema

from deepinfer_cli.bench.conditions import CpuClock, Load, machine
from tests.soak.process import deepinfer

NUM_SCHEMAS = 200
_SUBJECTS = ("a harbour", "a recipe", "an invoice", "a star", "a train", "a book", "a bird", "a bridge")
_TREE = {
    "type": "object",
    "properties": {
        "v": {"type": "integer", "minimum": 0, "maximum": 99},
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]},
    },
    "required": ["v", "next"],
    "additionalProperties": False,
}


def schema(number: int) -> dict[str, Any]:
    """One of 200: objects, arrays, choices of kinds, recursion, bounds, patterns and formats, all bounded."""
    rng = random.Random(number)
    top = rng.choice((_object, _object, _object, _array))(rng, 0)
    if number % 10 == 0:
        top = {"$ref": "#/$defs/tree"}
    if number % 10 == 0:
        top = {"$ref": "#/$defs/tree", "$defs": {"tree": _TREE}}
    elif number % 7 == 3:
        top = {"$schema": "http://json-schema.org/draft-07/schema#", **top}
    return {**top, "title": f"schema {number}"}


def _value(rng: random.Random, depth: int) -> dict[str, Any]:
    if depth < 2 and rng.random() < 0.25:
        return rng.choice((_object, _array))(rng, depth + 1)
    low = rng.randint(-50, 50)
    return rng.choice(
        (
            {"type": "string", "maxLength": rng.randint(1, 20)},
            {"type": "string", "minLength": 2, "maxLength": 12},
            {"type": "string", "pattern": "^[A-Z][a-z]{2,8}( [A-Z][a-z]{2,8})?$"},
            {"type": "string", "pattern": f"^[a-z]{{{rng.randint(1, 3)}}}-[0-9]{{2,4}}$"},
            {"type": "string", "format": rng.choice(("uuid", "ipv4", "time"))},
            {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 500)},
            {"type": "integer", "exclusiveMinimum": 0, "maximum": 1000, "multipleOf": rng.choice((2, 5, 15))},
            {
                "enum": rng.sample(
                    ["red", "green", "blue", 1, 2.5, None, True, ["x"], {"k": 0}], rng.randint(1, 5)
                )
            },
            {"const": rng.choice(("v1", 7, None))},
            {"type": ["boolean", "null"]},
            {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "string", "maxLength": 5}]},
        )
    )


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(("id", "name", "kind", "size", "tags", "note", "unit", "ref"), rng.randint(1, 5))
    return {
        "type": "object",
        "properties": {name: _value(rng, depth) for name in names},
        "required": [name for name in names if rng.random() < 0.7],
        "additionalProperties": False,
    }


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    least = rng.randint(0, 3)
    return {
        "type": "array",
        "items": _value(rng, depth + 1),
        "minItems": least,
        "maxItems": least + rng.randint(0, 3),
    }


def write_rows(path: Path, num_rows: int, max_tokens: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for i in range(num_rows):
            subject = _SUBJECTS[i % len(_SUBJECTS)]
            ask = [{"role": "user", "content": f"Describe {subject} as JSON, number {i}."}]
            constraint = {"json_schema": schema(i % NUM_SCHEMAS)}
            row = {"id": i, "messages": ask, "constraint": constraint, "max_tokens": max_tokens}
            file.write(json.dumps(row) + "\n")


def check(lines: list[str]) -> Counter[str]:
    """What became of the rows. Stops at a text that is not what it says."""
    found: Counter[str] = Counter()
    validators: dict[int, Any] = {}
    for i, line in enumerate(lines):
        row = json.loads(line)
        assert row["id"] == i
        (output,) = row["outputs"] or ({},)
        if row["status"] == "error":
            found[row["error"]["code"]] += 1
            assert row["error"]["code"] == "constraint_truncated" and "parsed" not in output, row
            continue
        found["ok"] += 1
        number = i % NUM_SCHEMAS
        if number not in validators:
            kind = jsonschema.validators.validator_for(
                schema(number), default=jsonschema.Draft202012Validator
            )
            validators[number] = kind(schema(number), format_checker=kind.FORMAT_CHECKER)
        value = json.loads(output["text"])
        validators[number].validate(value)
        assert output["parsed"] == value
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--alone", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    about, before = machine(), CpuClock.read()
    with tempfile.TemporaryDirectory() as folder:
        rows, out, few, alone = (Path(folder) / name for name in ("rows", "out", "few", "alone"))
        write_rows(rows, arguments.rows, arguments.max_tokens)
        command = ["--model", arguments.model, "--temperature", "1", "--order", "input"]
        _run("run", rows, "-o", out, "--max-num-seqs", "64", *command)
        lines = out.read_text(encoding="utf-8").splitlines()
        assert len(lines) == arguments.rows
        counts = check(lines)
        print(f"{arguments.rows} rows under {NUM_SCHEMAS} schemas: {dict(counts)}", flush=True)
        source = rows.read_text(encoding="utf-8").splitlines(keepends=True)
        chosen = random.Random(0).sample(range(arguments.rows), min(arguments.alone, arguments.rows))
        few.write_text("".join(source[i] for i in chosen), encoding="utf-8")
        _run("run", few, "-o", alone, "--max-num-seqs", "1", "--no-prefix-cache", *command)
        for i, line in zip(chosen, alone.read_text(encoding="utf-8").splitlines(), strict=True):
            # Its place in the file and the settings differ, nothing else.
            assert _without_place(line) == _without_place(lines[i]), (line, lines[i])
        print(f"{len(chosen)} of them alone: the same bytes")
    record = {
        "what": "rows under constraints: valid by jsonschema, and again alone with the same bytes",
        "machine": about,
        "model": arguments.model.name,
        "num_rows": arguments.rows,
        "num_schemas": NUM_SCHEMAS,
        "max_tokens": arguments.max_tokens,
        "ok": counts["ok"],
        "truncated": counts["constraint_truncated"],
        "alone": len(chosen),
        "load": Load.between(before, CpuClock.read()).as_dict(),
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _run(*arguments: str | Path) -> None:
    code = subprocess.run(deepinfer(*arguments), check=False).returncode
    if code not in (0, 3):
        sys.exit(f"ended with {code}")


def _without_place(line: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line)
    error = row.get("error", {})
    kept = {key: value for key, value in row.items() if key not in ("index", "settings", "error")}
    return {**kept, "error": {k: v for k, v in error.items() if k != "line"}}


if __name__ == "__main__":
    main()
