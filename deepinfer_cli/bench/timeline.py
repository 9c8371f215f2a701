"""From the times at which tokens were made to the numbers of one repetition.

All times are seconds on the monotonic clock. The engine stamps every token with the end of the step that made
it: nothing here is the time of a delivery or of a chunk. bench/fields.py defines each number in words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from deepinfer_cli.bench.spec import Slo
from deepinfer_cli.errors import InternalError
from deepinfer_cli.stats.paired import quantile

PEAK_SECONDS: Final = 1.0  # width of the windows of the peak rate
DISTRIBUTIONS: Final = ("ttft_ms", "tpot_ms", "itl_ms", "step_gap_ms", "e2e_ms", "queue_ms")
STATISTICS: Final = ("mean", "std", "p50", "p90", "p95", "p99", "max")


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """One request, from its submission to its last token."""

    submitted: float
    queue_s: float  # submission to first admission
    token_times: Sequence[float]
    num_prompt_tokens: int
    num_cached_tokens: int  # of the prompt, taken from the prefix cache
    finish_reason: str
    num_preemptions: int = 0

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_times)

    @property
    def admitted(self) -> float:
        return self.submitted + self.queue_s

    @property
    def ttft_s(self) -> float | None:
        return self.token_times[0] - self.submitted if self.token_times else None

    @property
    def tpot_s(self) -> float | None:
        times = self.token_times
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None

    @property
    def e2e_s(self) -> float | None:
        return self.token_times[-1] - self.submitted if self.token_times else None

    def keeps(self, slo: Slo) -> bool:
        """Whether it kept every limit that is set; a request without tokens keeps none."""
        if not self.token_times:
            return False
        pairs = ((self.ttft_s, slo.ttft_ms), (self.tpot_s, slo.tpot_ms), (self.e2e_s, slo.e2e_ms))
        return all(limit is None or value is None or value * 1e3 <= limit for value, limit in pairs)


def distribution(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, population standard deviation, linear percentiles (Hyndman and Fan's type 7) and maximum."""
    if not values:
        return dict.fromkeys(STATISTICS)
    ordered = sorted(values)
    mean = math.fsum(ordered) / len(ordered)
    variance = math.fsum((v - mean) ** 2 for v in ordered) / len(ordered)
    shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    percentiles = {name: quantile(ordered, share) for name, share in shares.items()}
    return {"mean": mean, "std": math.sqrt(variance), **percentiles, "max": ordered[-1]}


class Timeline:
    """All requests of one repetition."""

    def __init__(self, traces: Sequence[RequestTrace], concurrency: int) -> None:
        self.traces = traces
        self.concurrency = concurrency
        self.stamps = sorted(time for trace in traces for time in trace.token_times)
        self.start = min((trace.submitted for trace in traces), default=0.0)
        self.end = self.stamps[-1] if self.stamps else self.start

    @property
    def seconds(self) -> float:
        """From the first submission to the last token."""
        return self.end - self.start

    # ---- latency -------------------------------------------------------------------------------------------

    def latency(self) -> dict[str, dict[str, float | None]]:
        traces = self.traces
        gaps = [b - a for t in traces for a, b in pairwise(t.token_times)]
        steps = sorted(set(self.stamps))
        values = {
            "ttft_ms": [t.ttft_s for t in traces if t.ttft_s is not None],
            "tpot_ms": [t.tpot_s for t in traces if t.tpot_s is not None],
            "itl_ms": gaps,
            "step_gap_ms": [b - a for a, b in pairwise(steps)],
            "e2e_ms": [t.e2e_s for t in traces if t.e2e_s is not None],
            "queue_ms": [t.queue_s for t in traces],
        }
        return {name: distribution([1e3 * v for v in values[name]]) for name in DISTRIBUTIONS}

    # ---- throughput ----------------------------------------------------------------------------------------

    def rate(self, count: float) -> float | None:
        return count / self.seconds if self.seconds > 0 else None

    def peak_rate(self) -> float | None:
        """The highest output rate of any window, when the repetition is cut into windows of equal width."""
        if self.seconds <= 0:
            return None
        num_windows = max(1, math.floor(self.seconds / PEAK_SECONDS))
        width = self.seconds / num_windows
        counts = Counter(min(int((t - self.start) / width), num_windows - 1) for t in self.stamps)
        peak = max(counts.values()) / width
        mean = len(self.stamps) / self.seconds
        if peak < mean * (1 - 1e-9):
            raise InternalError(f"the peak rate {peak} is below the mean {mean}")
        return peak

    def steady_rate(self) -> float | None:
        """Output rate while all slots were decoding: from the first token of the last of the requests that
        began, to the first end that no new request followed. None when there was no such time."""
        begun = sorted(t.token_times[0] for t in self.traces if t.token_times)[: self.concurrency]
        ends = sorted(t.token_times[-1] for t in self.traces if t.token_times)
        if len(begun) < self.concurrency or len(ends) < self.concurrency:
            return None
        low, high = begun[-1], ends[len(ends) - self.concurrency]
        if high <= low:
            return None
        return sum(low < time <= high for time in self.stamps) / (high - low)

    def tail_share(self) -> float | None:
        """Share of the time in which fewer than half of the slots were busy."""
        if self.seconds <= 0:
            return None
        changes = sorted(
            [(t.admitted, 1) for t in self.traces if t.token_times]
            + [(t.token_times[-1], -1) for t in self.traces if t.token_times]
        )
        idle, busy, last = 0.0, 0, self.start
        for time, change in changes:
            if 2 * busy < self.concurrency:
                idle += time - last
            busy, last = busy + change, time
        return idle / self.seconds

    def throughput(self, cpu_seconds: float) -> dict[str, Any]:
        num_out = len(self.stamps)
        num_in = sum(t.num_prompt_tokens for t in self.traces)
        per_cpu = (num_in + num_out) / cpu_seconds if cpu_seconds > 0 else None
        return {
            "output_tokens_per_s": self.rate(num_out),
            "input_tokens_per_s": self.rate(num_in),
            "total_tokens_per_s": self.rate(num_in + num_out),
            "requests_per_s": self.rate(sum(bool(t.token_times) for t in self.traces)),
            "output_tokens_per_cpu_s": num_out / cpu_seconds if cpu_seconds > 0 else None,
            "total_tokens_per_cpu_s": per_cpu,
            "steady_output_tokens_per_s": self.steady_rate(),
            "peak_output_tokens_per_s": self.peak_rate(),
            "tail_share": self.tail_share(),
            "seconds": self.seconds,
            "cpu_seconds": cpu_seconds,
        }

    # ---- goodput, lengths ----------------------------------------------------------------------------------

    def goodput(self, slo: Slo, price_per_hour: float | None) -> dict[str, Any]:
        good = [t for t in self.traces if t.keeps(slo)]
        good_tokens = sum(t.num_output_tokens for t in good)
        return {
            "good_requests_per_s": self.rate(len(good)),
            "good_share": len(good) / len(self.traces) if self.traces else None,
            "good_output_tokens_per_s": self.rate(good_tokens),
            "cost_per_million_output_tokens": self._cost(len(self.stamps), price_per_hour),
            "cost_per_million_good_tokens": self._cost(good_tokens, price_per_hour),
        }

    def _cost(self, num_tokens: int, price_per_hour: float | None) -> float | None:
        if price_per_hour is None or num_tokens == 0:
            return None
        return price_per_hour * self.seconds / 3600 / num_tokens * 1e6

    def lengths(self) -> dict[str, Any]:
        def of(values: list[int]) -> dict[str, float | None]:
            spread = distribution([float(v) for v in values])
            return {name: spread[name] for name in ("mean", "p50", "p99")}

        num_prompt = sum(t.num_prompt_tokens for t in self.traces)
        cached = sum(t.num_cached_tokens for t in self.traces)
        return {
            "input_tokens": of([t.num_prompt_tokens for t in self.traces]),
            "output_tokens": of([t.num_output_tokens for t in self.traces]),
            "prefix_hit_rate": cached / num_prompt if num_prompt else None,
        }

    @property
    def is_queue_dominated(self) -> bool:
        """Whether everything was handed over at once, so that the first token's time is mostly waiting."""
        return len(self.traces) > 1 and self.concurrency >= len(self.traces)
