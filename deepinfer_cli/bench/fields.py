"""Every number of a cell: unit, definition, formula. Tables, CSV and the reference page come from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from deepinfer_cli.bench.timeline import STATISTICS

Better = Literal["higher", "lower", ""]


@dataclass(frozen=True, slots=True)
class Field:
    path: str  # in a repetition's values and in a cell's `values`: "throughput.output_tokens_per_s"
    unit: str
    definition: str
    formula: str = ""
    title: str = ""  # column head; empty = not in the short table
    better: Better = ""  # which way is good, where that can be said


_DISTRIBUTION_TEXTS: Final = {
    "ttft_ms": (
        "Time to first token: from the submission of a request to the end of the step that made it",
        "t_1 - t_submit",
    ),
    "tpot_ms": ("Mean time per further token of one request", "(t_n - t_1) / (n - 1), n > 1"),
    "itl_ms": (
        "Time between neighbouring tokens of one request, every pair counted; 0 inside one step",
        "t_i - t_(i-1)",
    ),
    "step_gap_ms": (
        "Time between neighbouring steps that made tokens, over all requests",
        "s_j - s_(j-1), s = distinct token times",
    ),
    "e2e_ms": ("From the submission of a request to its last token", "t_n - t_submit"),
    "queue_ms": ("From the submission of a request to its first admission into a step", "t_admit - t_submit"),
}
_STATISTIC_TEXTS: Final = {
    "mean": "mean",
    "std": "population standard deviation",
    "p50": "median",
    "p90": "90th percentile",
    "p95": "95th percentile",
    "p99": "99th percentile",
    "max": "largest",
}

_T = "T = last token - first submission"


def _lengths() -> list[Field]:
    fields = []
    for name, of_what in (("input_tokens", "prompts"), ("output_tokens", "answers")):
        for statistic in ("mean", "p50", "p99"):
            text = f"Tokens of the {of_what} as measured: {_STATISTIC_TEXTS[statistic]}"
            fields.append(Field(f"lengths.{name}.{statistic}", "tokens", text))
    return [
        *fields,
        Field(
            "lengths.prefix_hit_rate",
            "share",
            "Prompt tokens that came from the prefix cache; 0 = the cache was cold",
            "cached prompt tokens / prompt tokens",
            "cached",
        ),
    ]


def _latencies() -> list[Field]:
    titles = {"ttft_ms.p50": "TTFT p50", "tpot_ms.p50": "TPOT p50", "itl_ms.p99": "ITL p99"}
    fields = []
    for name, (text, formula) in _DISTRIBUTION_TEXTS.items():
        for s in STATISTICS:
            short = f"{name}.{s}"
            definition = f"{text}: {_STATISTIC_TEXTS[s]}"
            fields.append(
                Field(f"latency.{short}", "ms", definition, formula, titles.get(short, ""), "lower")
            )
    return fields


FIELDS: Final[tuple[Field, ...]] = (
    *_lengths(),
    Field(
        "throughput.output_tokens_per_s",
        "tokens/s",
        "Generated tokens per second of wall time, whole repetition",
        f"output tokens / T; {_T}",
        "out tok/s",
        "higher",
    ),
    Field(
        "throughput.input_tokens_per_s",
        "tokens/s",
        "Prompt tokens per second of wall time, cached ones included",
        "prompt tokens / T",
        "",
        "higher",
    ),
    Field(
        "throughput.total_tokens_per_s",
        "tokens/s",
        "Prompt and generated tokens per second of wall time",
        "(prompt tokens + output tokens) / T",
        "",
        "higher",
    ),
    Field("throughput.requests_per_s", "1/s", "Finished requests per second", "requests / T", "", "higher"),
    Field(
        "throughput.output_tokens_per_cpu_s",
        "tokens/CPU s",
        "Generated tokens per CPU second of the process, all its threads, waiting in loops included",
        "output tokens / process CPU time",
        "",
        "higher",
    ),
    Field(
        "throughput.total_tokens_per_cpu_s",
        "tokens/CPU s",
        "Prompt and generated tokens per CPU second: what neighbours on the machine disturb least",
        "(prompt tokens + output tokens) / process CPU time",
        "tok/CPU s",
        "higher",
    ),
    Field(
        "throughput.steady_output_tokens_per_s",
        "tokens/s",
        "Output rate while all slots were decoding; empty when there was no such time",
        "tokens in (a, b] / (b - a); a = first token of the `concurrency`-th request, b = first end without "
        "successor",
        "",
        "higher",
    ),
    Field(
        "throughput.peak_output_tokens_per_s",
        "tokens/s",
        "Highest output rate of any window when T is cut into floor(T / 1 s) equal windows, at least one",
        "max over windows of tokens / width; never below the mean",
        "",
        "higher",
    ),
    Field(
        "throughput.tail_share",
        "share",
        "Time in which fewer than half of the slots were busy",
        "seconds with 2 x busy < concurrency / T",
        "",
        "lower",
    ),
    Field("throughput.seconds", "s", "Wall time of the repetition", _T),
    Field("throughput.cpu_seconds", "s", "CPU time of the process meanwhile, this command included"),
    *_latencies(),
    Field(
        "goodput.good_requests_per_s",
        "1/s",
        "Requests per second that kept every limit of the SLO",
        "good requests / T",
        "good req/s",
        "higher",
    ),
    Field("goodput.good_share", "share", "Requests that kept every limit", "good / all", "good", "higher"),
    Field(
        "goodput.good_output_tokens_per_s",
        "tokens/s",
        "Generated tokens per second of requests that kept every limit",
        "their output tokens / T",
        "",
        "higher",
    ),
    Field(
        "goodput.cost_per_million_output_tokens",
        "money",
        "At --price-per-hour, in its currency",
        "price x T / 3600 s / output tokens x 10^6",
        "cost/M",
        "lower",
    ),
    Field(
        "goodput.cost_per_million_good_tokens",
        "money",
        "The same over tokens of requests that kept every limit",
        "price x T / 3600 s / their output tokens x 10^6",
        "",
        "lower",
    ),
    Field("steps.num_steps", "", "Steps that the engine took"),
    Field("steps.mean_step_ms", "ms", "Mean time of a step", "time in steps / steps", "", "lower"),
    Field("steps.busy_share", "share", "Time in steps", "time in steps / T"),
    Field("steps.preemptions", "", "Times that a running sequence had to give up its cache"),
    Field(
        "steps.decode_tokens_per_s_per_user",
        "tokens/s",
        "Decode speed of one request at the contexts of this cell",
        "1000 / median TPOT in ms",
        "tok/s/user",
        "higher",
    ),
    Field(
        "roofline.share",
        "share",
        "Share of this machine's limit: least time for this work in these steps / measured time",
        "sum over steps of max(bytes / read rate, sum over arithmetics of operations / peak) / T",
        "roofline",
        "higher",
    ),
    Field("roofline.least_seconds", "s", "That least time"),
    Field(
        "roofline.memory_bound_share",
        "share",
        "Of the least time, the part in steps that reading memory bounds",
    ),
    Field(
        "roofline.bytes",
        "bytes",
        "Read from memory at least: packed weights once per step, keys and values of every context",
        "sum over steps of (weight bytes + cached tokens read x KV bytes per token)",
    ),
    Field(
        "roofline.ops",
        "operations",
        "Multiplications and additions of products and attention",
        "sum of 2 n k per token and weight, head per logits row, 4 x layers x heads x head size per token "
        "seen",
    ),
    Field("roofline.achieved_gbps", "GB/s", "Bytes over time", "bytes / T / 10^9"),
    Field("roofline.achieved_gops", "Gop/s", "Operations over time", "operations / T / 10^9"),
    Field(
        "roofline.dram_gbps",
        "GB/s",
        "Read rate of memory, measured before and after the repetition on its threads, the better counts",
    ),
    Field("roofline.int8_gops", "Gop/s", "Peak of 8-bit products, measured likewise"),
    Field("roofline.bf16_gops", "Gop/s", "Peak of bf16 products, measured likewise"),
    Field("roofline.fp32_gops", "Gop/s", "Peak of fp32 multiply-adds, measured likewise"),
    Field("memory.weight_bytes", "bytes", "Packed weights in memory"),
    Field("memory.kv_pool_bytes", "bytes", "Memory reserved for keys and values"),
    Field("memory.kv_peak_share", "share", "Largest share of the KV blocks seen in use"),
    Field(
        "memory.peak_rss_bytes",
        "bytes",
        "Largest resident memory of the process during the repetition",
        "",
        "RSS",
        "lower",
    ),
    Field("energy.joules", "J", "Energy of the processor packages (RAPL counters); empty where unreadable"),
    Field("energy.mean_watts", "W", "Mean power", "joules / T"),
    Field("energy.joules_per_output_token", "J", "Energy per generated token", "joules / output tokens"),
    Field(
        "peer.output_tokens_per_s",
        "tokens/s",
        "The peer of --against on the same prompts: generated tokens per second of wall time",
        "its output tokens / its wall time",
        "peer out tok/s",
        "",
    ),
    Field(
        "peer.total_tokens_per_cpu_s",
        "tokens/CPU s",
        "Its prompt and generated tokens per CPU second of its process; empty for a server",
        "tokens / CPU time of its process",
        "peer tok/CPU s",
        "",
    ),
    Field("peer.seconds", "s", "Its wall time for the job"),
    Field("peer.cpu_seconds", "s", "Its CPU time for the job"),
    Field(
        "conditions.others_cpu_share",
        "share",
        "CPU time of the machine that other processes used meanwhile; above 0.1, distrust wall times",
        "others' CPU seconds / (T x CPUs)",
        "others",
    ),
)
BY_PATH: Final[Mapping[str, Field]] = {f.path: f for f in FIELDS}
PRIMARY: Final = "throughput.output_tokens_per_s"  # what repetitions converge on
STEADY_AGAINST_NEIGHBOURS: Final = "throughput.total_tokens_per_cpu_s"  # what comparisons lean on


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of nested mappings; None where a part is missing."""
    found: Any = values
    for part in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse: dotted paths to nested mappings."""
    found: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split(".")
        at = found
        for parent in parents:
            at = at.setdefault(parent, {})
        at[name] = value
    return found
