# ruff: noqa: E501 - a row of a Markdown table is one line
"""The reference page of benchmarks, made from the tables that the code works with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from deepinfer_cli.bench import record
from deepinfer_cli.bench.fields import FIELDS, PRIMARY
from deepinfer_cli.bench.session import BUDGET_S, MAX_REPETITIONS, MIN_REPETITIONS
from deepinfer_cli.bench.spec import (
    ALIASES,
    BUILT_IN,
    ENGINE_KEYS,
    FIXED_ONLY,
    load_settings,
    slo_settings,
    sweep_settings,
)
from deepinfer_cli.bench.sweep_file import MAX_BUDGET_S
from deepinfer_cli.config.spec import Setting
from deepinfer_cli.config.values import to_json, wanted

_GROUPS: Final[Mapping[str, str]] = {
    "lengths": "Lengths and cache, as measured",
    "throughput": "Throughput",
    "latency": "Latency",
    "goodput": "Goodput and cost",
    "steps": "Steps of the engine",
    "roofline": "Beside the machine's limits",
    "memory": "Memory",
    "energy": "Energy",
    "peer": "The peer of --against",
    "conditions": "Conditions",
}

_INTRO: Final = f"""# Benchmarks

`deepinfer bench` measures in its own process, on the engine that `deepinfer run` uses. How to use it is in
[measure honestly](../how-to/measure.md); this page says what every key and every number means.

## A repetition

1. The machine's limits are measured, on the engine's threads, while the engine rests.
2. `warmup` requests run and are not counted.
3. `concurrency` requests are kept in flight until `num_prompts` are finished. Each prompt has exactly
   `input_len` tokens of text of ours, each answer exactly `output_len`, because ends of sequence are ignored.
   The cell fails when the mean answer is off by more than 1 %.
4. Every token has the time at which the step that made it ended. Nothing is a time of delivery.

Rounds go forth and back over all cells, so that slow drift meets all of them alike; when engine settings vary
and loading would take more than a quarter of the budget, one group of settings is measured after the other
(`basis.order` in the header says which).

A cell is repeated {MIN_REPETITIONS} times, and up to {MAX_REPETITIONS} times while the half width of the 95 % interval of the median of
`{PRIMARY}` is above {100 * record.CONVERGED_WIDTH:.0f} % and the time budget ({BUDGET_S / 60:.0f} min unless said) lasts. A cell that stays above
is marked `not converged`. A cell's value of a field is the median over its repetitions. `repetitions` asks for
an exact number, without a budget unless one is given.

With `--against`, what has to become certain is the ratio to the peer.

A cell that cannot run stays in the table as `failed` with its reason, and the command ends with exit code 3;
`--resume` tries failed cells again and leaves finished ones alone. What counts as the same cell is its load,
engine settings, SLO and price, the bytes of the native core, the version, the model's and the tokenizer's
fingerprint, and the processor.

## Sweep files

`deepinfer bench --sweep FILE.yaml`. Sections: `sweep` (each key a list; the cells are the product, the first
key varies slowest), `fixed` (the same in every cell), `slo`, `price_per_hour`, and `budget_s` (seconds, up to
{MAX_BUDGET_S:,}). Unknown keys and sections are refused with file, line and column.
"""

_FILES: Final = """
## Files of `--save DIR`

| File | Holds |
| --- | --- |
| `repetitions.jsonl` | The journal: a line per run, repetition and failure, appended as it happens |
| `cells.json` | Header and cells with all repetitions; what `bench compare` and `bench plot` read |
| `cells.jsonl` | One line per cell |
| `cells.csv` | One flat row per cell, one column per field |
| `table.md` | The short table |
| `report.html` | Plots, table, header and the command to replay; opens without a network |
| `config.yaml` | The resolved settings; can be used with `--config` |

The header holds what must be equal before two numbers may be compared: `checkpoint` (with quantisation),
`runtime` (engine, build, file layout), `effort_and_context`, `memory_and_disk`, `task_mix`, `decode_speed` (at
the contexts of these cells) and `basis` (clock, order, interval).

`output_hash` is a hash of all tokens of the first repetition: the same cell of the same sweep, with the same
seed and arithmetic, has the same hash on any machine.
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _settings(specs: Iterable[Setting], *, defaults: bool = True) -> Iterator[str]:
    yield "| Key | Takes | Default | Option | Meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for spec in specs:
        flags = ", ".join(f"`{flag}`" for flag in spec.flags)
        default = f"`{to_json(spec, spec.default)}`" if defaults and spec.default is not None else ""
        yield f"| `{spec.key}` | {_cell(wanted(spec))} | {default} | {flags} | {_cell(spec.help)} |"


def _fields(group: str) -> Iterator[str]:
    yield "| Field | Unit | Definition | Formula |"
    yield "| --- | --- | --- | --- |"
    for spec in FIELDS:
        if spec.path.startswith(f"{group}."):
            formula = f"`{_cell(spec.formula)}`" if spec.formula else ""
            yield f"| `{spec.path}` | {spec.unit} | {_cell(spec.definition)} | {formula} |"


def bench_page() -> str:
    table = sweep_settings()
    lines = [_INTRO, "### Keys of the load\n", *_settings(load_settings().values())]
    lines += [f"\nNot in `sweep`: {', '.join(f'`{key}`' for key in FIXED_ONLY)}."]
    lines += ["\n### Keys of the engine\n", *_settings(table[key] for key in ENGINE_KEYS)]
    lines += [f"\n`{alias}` is another name for `{key}`." for alias, key in ALIASES.items()]
    swept = "; ".join(f"`{k}` {', '.join(map(str, v))}" for k, v in BUILT_IN.sweep.items())
    fixed = ", ".join(f"`{k}` {v}" for k, v in BUILT_IN.fixed.items())
    lines += ["\n### Limits of the SLO\n", *_settings(slo_settings().values(), defaults=False)]
    lines += [f"\nWithout a file, `--sweep` measures {swept} at {fixed}."]
    lines += ["\n## Fields of a cell\n", "`T` is the wall time of a repetition; shares lie between 0 and 1."]
    for group, title in _GROUPS.items():
        lines += [f"\n### {title}\n", *_fields(group)]
    return "\n".join(lines) + "\n" + _FILES
