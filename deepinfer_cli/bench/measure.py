"""One repetition of one cell on the running engine: warm up, keep `concurrency` requests in flight, read off
every token's time.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deepinfer_cli.bench.conditions import CpuClock, Load
from deepinfer_cli.bench.probes import (
    EnergyReading,
    best_of,
    measure_limits,
    peak_rss_bytes,
    reset_peak_rss,
)
from deepinfer_cli.bench.spec import Cell, Slo
from deepinfer_cli.bench.timeline import RequestTrace, Timeline
from deepinfer_cli.bench.work import Limits, ModelWork, least_seconds
from deepinfer_cli.engine.native import NativeEngine
from deepinfer_cli.requests.types import SamplingValues

LENGTH_TOLERANCE: Final = 0.01  # of the mean output length, when it was prescribed
SEEN_SECONDS: Final = 0.5  # the kernel counts CPU time in hundredths: shorter spans say nothing of others
WARMUP_TOKENS: Final = 8  # most that a warm-up request generates
_POLL_S: Final = 0.1
_POLL_BURST: Final = 1024


class CellFailed(Exception):
    """A cell cannot be measured; the argument is the reason, for the table."""


class Stopped(Exception):
    """The user wants to end; the repetition in progress is thrown away."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request before it is submitted."""

    token_ids: Sequence[int]
    params: SamplingValues
    seed: int
    constraint: Any = None  # template of a row that has one


@dataclass(frozen=True, slots=True)
class Outcome:
    trace: RequestTrace
    output_digest: bytes


@dataclass(slots=True)
class Measurement:
    """What one repetition needs besides its requests."""

    engine: NativeEngine
    cell: Cell
    work: ModelWork | None
    slo: Slo
    price_per_hour: float | None
    is_stopped: Callable[[], bool]
    expects_lengths: bool = True  # every request shall have exactly its max_tokens
    constraint: Any = None  # template of answers to requests without one of their own
    limits_of: Callable[[Sequence[str], Any], Limits] = measure_limits

    def run(self, asks: Sequence[Ask], warmup: Sequence[Ask]) -> dict[str, Any]:
        """The repetition's numbers as nested plain values (bench/fields.py). Raises CellFailed or Stopped."""
        limits = self._limits()
        if warmup:
            self._flight(warmup)
        reset_peak_rss()
        before, energy = CpuClock.read(), EnergyReading.read()
        cpu, steps = time.process_time(), self.engine.stats()
        outcomes, kv_peak = self._flight(asks)
        cpu = time.process_time() - cpu
        end_energy, load = EnergyReading.read(), Load.between(before, CpuClock.read())
        joules = energy.joules_until(end_energy) if energy and end_energy else None
        peak_rss = peak_rss_bytes()
        after = self._limits()
        if limits is not None and after is not None:
            limits = best_of(limits, after)
        timeline = Timeline([o.trace for o in outcomes], self.cell.load.concurrency)
        lengths = timeline.lengths()
        self._check_lengths(asks, timeline)
        return {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "lengths": lengths,
            "throughput": timeline.throughput(cpu),
            "latency": timeline.latency(),
            "goodput": timeline.goodput(self.slo, self.price_per_hour),
            "steps": self._steps_part(steps, timeline),
            "memory": self._memory(kv_peak, peak_rss),
            "energy": self._energy(joules, timeline),
            "roofline": self._roofline(limits, timeline),
            "correctness": _correctness(outcomes),
            "conditions": {
                "others_cpu_share": load.others_share if load.wall_seconds >= SEEN_SECONDS else None
            },
        }

    def _limits(self) -> Limits | None:
        """The machine's limits now; None for a model that has no weights."""
        return None if self.work is None else self.limits_of(self.work.arithmetics(), self.engine.pool)

    def _flight(self, asks: Sequence[Ask]) -> tuple[list[Outcome], float]:
        """Outcomes in the order of `asks`, and the largest share of the KV blocks that was seen in use."""
        engine, width = self.engine, self.cell.load.concurrency
        outcomes: dict[int, Outcome] = {}
        submitted: dict[int, float] = {}
        peak, next_ask = 0.0, 0
        try:
            while len(outcomes) < len(asks):
                while next_ask < len(asks) and len(submitted) - len(outcomes) < width:
                    ask = asks[next_ask]
                    request = engine.request(
                        next_ask,
                        ask.token_ids,
                        ask.params,
                        ask.seed,
                        token_times=True,
                        constraint=ask.constraint or self.constraint,
                    )
                    submitted.setdefault(next_ask, time.monotonic())
                    if not engine.try_submit(request):
                        break
                    next_ask += 1
                for done in engine.poll(_POLL_BURST, _POLL_S):
                    outcomes[done.id] = _outcome(done, submitted[done.id])
                stats = engine.stats()
                peak = max(peak, stats["num_blocks_used"] / max(1, stats["num_blocks_total"]))
                if self.is_stopped():
                    raise Stopped
        except BaseException:
            self._drain(next_ask - len(outcomes))
            raise
        return [outcomes[i] for i in range(len(asks))], peak

    def _drain(self, num_open: int) -> None:
        """Nothing of an abandoned repetition may run into the next one."""
        self.engine.abort_all()
        while num_open > 0:
            taken = len(self.engine.poll(_POLL_BURST, 10.0))
            if not taken:
                return
            num_open -= taken

    def _check_lengths(self, asks: Sequence[Ask], timeline: Timeline) -> None:
        if not self.expects_lengths:
            return
        wanted = sum(ask.params.max_tokens or 0 for ask in asks) / len(asks)
        mean = len(timeline.stamps) / len(asks)
        if abs(mean - wanted) > LENGTH_TOLERANCE * wanted:
            raise CellFailed(f"answers have {mean:.1f} tokens on average, not the {wanted:g} asked for")

    # ---- parts ---------------------------------------------------------------------------------------------

    def _steps_part(self, before: Mapping[str, Any], timeline: Timeline) -> dict[str, Any]:
        after = self.engine.stats()
        num_steps = after["num_steps"] - before["num_steps"]
        busy = after["busy_seconds"] - before["busy_seconds"]
        tpot = timeline.latency()["tpot_ms"]["p50"]
        return {
            "num_steps": num_steps,
            "mean_step_ms": 1e3 * busy / num_steps if num_steps else None,
            "busy_share": busy / timeline.seconds if timeline.seconds > 0 else None,
            "preemptions": sum(t.num_preemptions for t in timeline.traces),
            "decode_tokens_per_s_per_user": 1e3 / tpot if tpot else None,
        }

    def _memory(self, kv_peak: float, peak_rss: int) -> dict[str, Any]:
        return {
            "weight_bytes": None if self.work is None else self.work.weight_bytes,
            "kv_pool_bytes": self.engine.kv_plan.num_bytes,
            "kv_peak_share": kv_peak,
            "peak_rss_bytes": peak_rss,
        }

    def _energy(self, joules: float | None, timeline: Timeline) -> dict[str, Any]:
        num_tokens = len(timeline.stamps)
        return {
            "joules": joules,
            "mean_watts": joules / timeline.seconds if joules is not None and timeline.seconds > 0 else None,
            "joules_per_output_token": joules / num_tokens if joules is not None and num_tokens else None,
        }

    def _roofline(self, limits: Limits | None, timeline: Timeline) -> dict[str, Any]:
        if self.work is None or limits is None:
            return {}
        found = least_seconds(self.work, limits, timeline.traces)
        seconds, least = timeline.seconds, found["least_seconds"]

        def per_second(what: str) -> float | None:
            amount = found[what]
            return None if amount is None or seconds <= 0 else amount / seconds * 1e-9

        return {
            "share": None if least is None or seconds <= 0 else least / seconds,
            **found,
            "achieved_gbps": per_second("bytes"),
            "achieved_gops": per_second("ops"),
            **limits.as_json(),
        }


def _outcome(done: Any, submitted: float) -> Outcome:
    if done.error:
        raise CellFailed(f"a request failed: {done.error}")
    (sample, *_) = done.samples
    trace = RequestTrace(
        submitted=submitted,
        queue_s=max(0.0, done.submit_time - submitted) + done.queue_seconds,
        token_times=sample.token_times,
        num_prompt_tokens=done.num_prompt_tokens,
        num_cached_tokens=done.num_cached_tokens,
        finish_reason=sample.finish_reason,
        num_preemptions=done.num_preemptions,
    )
    return Outcome(trace, hashlib.blake2b(repr(list(sample.tokens)).encode(), digest_size=16).digest())


def _correctness(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    digest = hashlib.blake2b(digest_size=8)
    for outcome in outcomes:
        digest.update(outcome.output_digest)
    return {
        "failed_rows": 0,  # one failed request fails the cell
        "finish_reasons": dict(Counter(o.trace.finish_reason for o in outcomes)),
        "output_hash": digest.hexdigest(),
    }
