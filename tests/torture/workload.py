"""The work that is interrupted: rows of every kind, a generated llama, and what an uninterrupted run wrote.

Everything is made once a run, in one folder that all jobs read.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from deepinfer_cli.__main__ import main
from tests.support.runs import command, environment
from tests.support.tiny_models import TinyLlama, cached
from tests.torture.record import Tally, in_order, plain

TIMEOUT_S = 900.0  # only a hang takes so long
ENDS = (0, 3)  # exit codes of a run that is complete
NUM_ROWS = 2000
_WORDS = ("stone", "river", "lamp", "copper", "quiet", "under", "winter", "Füße", "日本", "🜁", "tab\there")

# Each kind, with texts that come to an end within the tokens of most rows, and some that do not.
_CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {"regex": r"[a-f]{2,9}(, [0-9]{1,3})?"},
    {"choice": ["yes", "no", "Füße", "a longer answer of some words"]},
    {"grammar": 'root ::= [a-z]{1,5} ("=" num | "(" root ")")\nnum ::= [0-9]{1,4}\n'},
    {"json_schema": {"type": "array", "items": {"enum": ["ß", 1, None]}, "minItems": 1, "maxItems": 5}},
    {
        "grammar": "list = item , { ',' , item } ; item = 'x' | 'y' | '[' , list , ']' ;",
        "grammar_syntax": "iso",
    },
    {"regex": r"\w{60,80}"},
    {
        "json_schema": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 6}, "ok": {"type": "boolean"}},
            "required": ["name", "ok"],
            "additionalProperties": False,
        }
    },
)


def rows_of_every_kind(count: int, seed: int = 7) -> list[str]:
    """Lines: greedy, sampled, n > 1, stop strings, scores, no id, doubled ids, constraints, rows that are
    errors."""
    rng = random.Random(seed)
    prefix = "The same beginning for many rows, longer than two blocks of the cache. "
    lines = []
    for i in range(count):
        row: dict[str, Any] = {"id": f"w{i}", "prompt": " ".join(rng.choices(_WORDS, k=rng.randint(1, 9)))}
        row["max_tokens"] = rng.randint(4, 72)
        row["temperature"] = rng.choice((0, 1.0, 1.5, 2.0))
        match i % 10:
            case 1:
                row |= {"n": rng.randint(2, 4), "seed": i, "top_p": 0.9}
            case 2:
                row["stop"] = rng.sample(["e", "a", "  ", "the", "ß"], 2)
            case 3:
                row["prompt"] = prefix + row["prompt"]
            case 4:
                row |= {"logprobs": True, "top_logprobs": 2, "max_tokens": 4}
            case 5:
                del row["id"]
                row["metadata"] = {"n": 1.50, "text": "\u2028", "i": i}
            case 6 if i % 20 == 6:
                row["temperature"] = -1
            case 7 if i % 30 == 7:
                row["id"] = "w0"
            case 8 if i % 40 == 8:
                lines.append('{"id": "torn')
                continue
            case 9:
                row |= {"constraint": _CONSTRAINTS[i // 10 % len(_CONSTRAINTS)], "n": 1 + i // 10 % 2}
        lines.append(json.dumps(row, ensure_ascii=i % 2 == 0))
    return lines


def plain_rows(count: int, max_tokens: int) -> list[str]:
    """For a model whose every token costs."""
    rng = random.Random(3)
    return [
        json.dumps({"id": i, "prompt": " ".join(rng.choices(_WORDS, k=12)), "max_tokens": max_tokens, "n": 2})
        for i in range(count)
    ]


@dataclass(frozen=True)
class Shape:
    """How the output is written."""

    name: str
    out: str = "out.jsonl"
    options: tuple[str, ...] = ()
    errors: str | None = None
    in_order: bool = True

    @property
    def is_plain(self) -> bool:
        """Not compressed: a row is there once its bytes are."""
        return self.out.endswith(".jsonl")

    def arguments(self, folder: Path) -> list[str]:
        given = ["-o", str(folder / self.out), *self.options]
        return given if self.errors is None else [*given, "--errors", str(folder / self.errors)]

    def rows(self, folder: Path) -> bytes:
        """All rows, those of the error file behind the others."""
        found = [plain(folder / name) for name in (self.out, self.errors) if name is not None]
        return b"".join(data if self.in_order else in_order(data) for data in found)


SHAPES = (
    Shape("input order"),
    Shape("openai", options=("--output-format", "openai")),
    Shape("errors apart", errors="errors.jsonl"),
    Shape("order of completion", options=("--order", "completion"), in_order=False),
    Shape("gzip", out="out.jsonl.gz", options=("--fsync", "0.2")),
    Shape("zstd", out="out.jsonl.zst", options=("--fsync", "0.2", "--order", "completion"), in_order=False),
)


@dataclass(frozen=True)
class Work:
    """An input and a model."""

    folder: Path  # shared by all jobs
    name: str
    model: str
    num_threads: int = 1

    @property
    def input(self) -> Path:
        return self.folder / f"{self.name}.jsonl"

    def command(self, shape: Shape, folder: Path, *more: str, model: str | None = None) -> list[str]:
        fixed = ("--model", model or self.model, "--threads", str(self.num_threads), "--progress", "none")
        return command("run", self.input, *fixed, *shape.arguments(folder), *more)

    def expected_folder(self, shape: Shape) -> Path:
        return self.folder / f"expected-{self.name}-{shape.name.replace(' ', '-')}"

    def expected(self, shape: Shape) -> bytes:
        """Rows of an uninterrupted run."""
        return shape.rows(self.expected_folder(shape))

    def prepare(self, lines: Sequence[str], shapes: Sequence[Shape]) -> None:
        self.input.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        for shape in shapes:
            folder = self.expected_folder(shape)
            folder.mkdir()
            started = time.monotonic()
            done = subprocess.run(
                self.command(shape, folder), env=environment(), capture_output=True, timeout=TIMEOUT_S
            )
            if done.returncode not in ENDS:
                raise RuntimeError(f"the uninterrupted run failed: {done.stderr.decode()}")
            (folder / "seconds").write_text(f"{time.monotonic() - started:.3f}")

    def seconds(self, shape: Shape) -> float:
        """Wall time of the uninterrupted run, start included."""
        return float((self.expected_folder(shape) / "seconds").read_text())


def tiny_work(folder: Path, count: int = NUM_ROWS, shapes: Sequence[Shape] = SHAPES) -> Work:
    model = cached(TinyLlama(seed=11), folder, "gguf", "Q8_0")
    work = Work(folder, f"tiny-{count}", str(model))
    if not work.input.exists():
        work.prepare(rows_of_every_kind(count), shapes)
    return work


def fake_work(folder: Path, count: int = NUM_ROWS, shapes: Sequence[Shape] = SHAPES) -> Work:
    work = Work(folder, f"fake-{count}", "fake")
    if not work.input.exists():
        work.prepare(rows_of_every_kind(count), shapes)
    return work


def good_rows(files: Iterable[Path], expected: bytes) -> frozenset[bytes]:
    """Lines of all files that an uninterrupted run writes too."""
    found: set[bytes] = set()
    for path in files:
        found.update(plain(path).splitlines())
    return frozenset(found.intersection(expected.splitlines()))


@dataclass
class Place:
    """One job's folder with one output in the making."""

    work: Work
    shape: Shape
    folder: Path
    tally: Tally
    said_in: Path | None = None  # where stderr goes; None = beside the folder

    @property
    def out(self) -> Path:
        return self.folder / self.shape.out

    @cached_property
    def expected(self) -> bytes:
        return self.work.expected(self.shape)

    @property
    def said(self) -> str:
        """What the last process wrote to stderr."""
        return self._stderr.read_text(errors="replace")

    @property
    def _stderr(self) -> Path:
        return (self.said_in or self.folder.parent) / f"{self.folder.name}.stderr"

    def start(
        self, *more: str, env: Mapping[str, str] | None = None, model: str | None = None
    ) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._stderr.open("wb") as stderr:
            return subprocess.Popen(
                self.work.command(self.shape, self.folder, *more, model=model),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env={**environment(), **(env or {})},
            )

    def run(self, *more: str, env: Mapping[str, str] | None = None, model: str | None = None) -> int:
        process = self.start(*more, env=env, model=model)
        try:
            return process.wait(TIMEOUT_S)
        finally:
            process.kill()

    def run_here(self, *more: str, model: str | None = None) -> int:
        """As `run`, in this process: a start costs more than the rows."""
        self.folder.mkdir(parents=True, exist_ok=True)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = main(self.work.command(self.shape, self.folder, *more, model=model)[3:])
        self._stderr.write_text(said.getvalue())
        return code

    def good_rows(self) -> frozenset[bytes]:
        """Final rows that no later attempt may need to run again; a copy that is being made has none of its
        own."""
        if not self.shape.is_plain:  # the last member was not ended, so it goes
            return frozenset()
        files = [path for path in self.folder.glob("*") if not path.name.startswith(".merged.")]
        return good_rows(files, self.expected)

    def check_kept(self, before: frozenset[bytes], what: str) -> None:
        num_lost = len(before - good_rows(self.folder.iterdir(), self.expected))
        if num_lost:
            self.tally.lost += num_lost
            self.tally.failures.append(f"{what}: {num_lost} finished rows are gone")

    def complain(self, what: str) -> None:
        last = self.said.strip().splitlines()[-3:]
        self.tally.failures.append(f"{what}: {' / '.join(last)}")

    def check_end(self, what: str, *, model: str | None = None) -> None:
        """Resumes undisturbed until all is done, compares, and makes sure that once more changes nothing."""
        code = self.run("--resume", model=model)
        if code not in ENDS:
            self.complain(f"{what}: the last --resume ended with {code}")
        found = self.shape.rows(self.folder)
        self.tally.compare(self.expected, found, what)
        before = self.out.read_bytes() if self.out.exists() else b""
        code = self.run("--resume", model=model)
        if code not in ENDS or "nothing is left to do" not in self.said:
            self.complain(f"{what}: --resume of a complete run ended with {code}")
        if before != (self.out.read_bytes() if self.out.exists() else b""):
            self.tally.failures.append(f"{what}: --resume of a complete run changed the file")
        left = [path.name for path in self.folder.iterdir() if path.name.startswith(".")]
        if left:
            self.tally.failures.append(f"{what}: left behind: {', '.join(left)}")
        self._check_run_file(what)

    def _check_run_file(self, what: str) -> None:
        counts = json.loads((self.folder / f"{self.shape.out}.run.json").read_text()).get("counts", {})
        rows = counts.get("ok", 0) + counts.get("failed", 0)
        if rows != len(self.expected.splitlines()):
            self.tally.failures.append(f"{what}: the run file counts {rows} rows")
