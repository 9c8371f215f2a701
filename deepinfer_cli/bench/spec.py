"""What a benchmark cell is: the keys of a load, engine settings beside it, and cells from their product."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

from deepinfer_cli.config.settings import EngineConfig, all_settings
from deepinfer_cli.config.spec import Setting, setting, settings_of

MAX_CELLS: Final = 1000


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of the engine in one cell."""

    concurrency: int = setting(
        8,
        "Requests kept in flight: a finished one is replaced at once until all are submitted",
        flags=("--concurrency",),
        minimum=1,
        maximum=65536,
        metavar="N",
    )
    input_len: int = setting(
        128,
        "Tokens of each prompt, exactly",
        flags=("--input-len",),
        minimum=1,
        maximum=2**31 - 1,
        metavar="N",
        unit="tokens",
    )
    output_len: int = setting(
        64,
        "Tokens of each answer, exactly: ends of sequence are ignored",
        flags=("--output-len",),
        minimum=1,
        maximum=2**31 - 1,
        metavar="N",
        unit="tokens",
    )
    num_prompts: int | None = setting(
        None,
        "Requests of one repetition; default is twice the concurrency, at least 4",
        flags=("--num-prompts",),
        minimum=1,
        maximum=10_000_000,
        metavar="N",
    )
    warmup: int = setting(
        1,
        "Requests before each repetition that are not counted",
        flags=("--warmup",),
        minimum=0,
        maximum=10_000,
        metavar="N",
    )
    repetitions: int | None = setting(
        None,
        "Repetitions of each cell; default is 5, and more while the time budget lasts and the result is "
        "uncertain",
        flags=("--repetitions",),
        minimum=1,
        maximum=1000,
        metavar="N",
    )
    prompts: Literal["unique", "repeated"] = setting(
        "unique",
        "unique: no two prompts of a run share a beginning, so the prefix cache stays cold; repeated: every "
        "repetition sends the same ones",
        flags=("--prompts",),
    )
    temperature: float = setting(
        0.0, "Randomness of the answers; 0 = greedy", flags=("--temperature",), minimum=0, maximum=100
    )
    seed: int = setting(
        0,
        "Seed of prompts and answers: the same seed asks the same",
        flags=("--seed",),
        minimum=0,
        maximum=2**63 - 1,
        metavar="N",
    )
    constraint: Literal["none", "json_object", "json_schema", "regex"] = setting(
        "none",
        "Constraint on the answers: an object, an array of objects, or printable characters, none of which "
        "can end before output_len",
    )
    speculation: str = setting("none", "Speculative decoding; none in this build", metavar="NAME")


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits that a request must keep to count as good; None = no limit."""

    ttft_ms: float | None = setting(None, "Longest time to the first token", minimum=0, unit="ms")
    tpot_ms: float | None = setting(None, "Longest mean time per further token", minimum=0, unit="ms")
    e2e_ms: float | None = setting(None, "Longest time to the last token", minimum=0, unit="ms")

    def __str__(self) -> str:
        limits = {name: getattr(self, name) for name in ("ttft_ms", "tpot_ms", "e2e_ms")}
        return ", ".join(f"{k} {v:g}" for k, v in limits.items() if v is not None) or "none"


# Engine settings that a sweep may set or vary.
ENGINE_KEYS: Final = (
    *("threads", "precision", "kv_dtype", "isa", "prefix_cache", "prefill_chunk", "max_step_tokens"),
    *("max_num_seqs", "max_model_len", "kv_cache_bytes", "kv_block_tokens"),
)
ALIASES: Final[Mapping[str, str]] = {"chunk": "prefill_chunk"}
# Keys that say how to measure, not what: they cannot be swept.
FIXED_ONLY: Final = ("repetitions", "warmup", "seed")
# Keys that rows of the user's own decide themselves.
SYNTHETIC_KEYS: Final = ("input_len", "output_len", "prompts", "temperature")


@cache
def load_settings() -> Mapping[str, Setting]:
    return {s.key: s for s in settings_of("load", Load)}


@cache
def slo_settings() -> Mapping[str, Setting]:
    return {s.key: s for s in settings_of("slo", Slo)}


@cache
def sweep_settings() -> Mapping[str, Setting]:
    """Everything that `sweep:` and `fixed:` know."""
    return {**load_settings(), **{key: all_settings()[key] for key in ENGINE_KEYS}}


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of a sweep. Everything that decides what is measured is in here, or in the run's identity."""

    index: int
    load: Load
    engine: EngineConfig
    swept: Mapping[str, Any]  # the keys that vary in this run, and their values here
    rows: str | None = None  # sha256 of the user's own rows; None = prompts are made

    @property
    def num_prompts(self) -> int:
        return self.load.num_prompts or max(4, 2 * self.load.concurrency)

    @property
    def num_tokens(self) -> int:
        """Of prompts and answers of a repetition; of rows of the user's only their number is known."""
        each = 1 if self.rows is not None else self.load.input_len + self.load.output_len
        return self.num_prompts * each

    @property
    def label(self) -> str:
        return ", ".join(f"{key} {_word(value)}" for key, value in self.swept.items()) or "one point"

    def as_json(self) -> dict[str, Any]:
        load = dataclasses.asdict(self.load)
        load["num_prompts"] = self.num_prompts
        if self.rows is not None:
            load |= dict.fromkeys(SYNTHETIC_KEYS) | {"rows_sha256": self.rows}
        engine = {key: getattr(self.engine, key) for key in ENGINE_KEYS}
        return {"load": load, "engine": engine}

    def key(self, identity: Mapping[str, Any]) -> str:
        """16 hex digits over what is measured and what measures it: equal keys are the same measurement."""
        what = self.as_json()
        for how_long in ("repetitions",):
            what["load"].pop(how_long)
        text = json.dumps([what, identity], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _word(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as it was asked for, checked."""

    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # in the order written
    fixed: Mapping[str, Any] = field(default_factory=dict)
    slo: Slo = Slo()
    price_per_hour: float | None = None
    budget_s: float | None = None

    def cells(self, engine: EngineConfig, rows: str | None = None) -> list[Cell]:
        """The product of the swept values; the key written first varies slowest."""
        cells: list[Cell] = []
        for values in itertools.product(*self.sweep.values()):
            swept = dict(zip(self.sweep, values, strict=True))
            chosen = {**self.fixed, **swept}
            load = Load(**{k: v for k, v in chosen.items() if k in load_settings()})
            changes = {k: v for k, v in chosen.items() if k in ENGINE_KEYS}
            cells.append(Cell(len(cells), load, dataclasses.replace(engine, **changes), swept, rows))
        return cells

    @property
    def num_cells(self) -> int:
        product = 1
        for values in self.sweep.values():
            product *= len(values)
        return product


# What `deepinfer bench --sweep` measures when nothing else is said: one to many at once, short and long.
BUILT_IN: Final = Sweep(
    sweep={"input_len": (128, 512), "concurrency": (1, 8, 32, 64)}, fixed={"output_len": 64}
)
