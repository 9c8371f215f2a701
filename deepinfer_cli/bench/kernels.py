"""`deepinfer bench kernels`: each micro-kernel at the shapes that the model really has."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from deepinfer_cli import machine
from deepinfer_cli.bench.probes import best_of, measure_limits
from deepinfer_cli.bench.work import ARITHMETICS, Limits, ModelWork, arithmetic_of, model_work
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.errors import UsageError
from deepinfer_cli.models.types import LoadedModel

ROWS: Final = (1, 8, 32, 64, 512)  # activations multiplied at once: decoding of so many, and a prompt's chunk
CONTEXTS: Final = (128, 1024)
BATCHES: Final = (1, 32)  # sequences whose attention is computed at once
ROTATED_BYTES: Final = 128 << 20  # weights and cache lie in more memory than processors' caches hold
CALL_SECONDS: Final = 0.05  # of each kernel; at least three calls are made


@dataclass(frozen=True, slots=True)
class KernelResult:
    kernel: str  # "gemm", "attention", "rms_norm", ...
    shape: str  # "Q4_1 1536 x 576"
    rows: int
    count: int  # how often the model has this shape
    microseconds: float  # of a call, the best
    gbps: float  # bytes that it must move / time
    gops: float | None  # operations / time; None where operations are not what it is about
    is_in_memory: bool  # its bytes come from memory; else they lie in caches
    arithmetic: str | None  # whose peak bounds it

    def memory_share(self, limits: Limits) -> float | None:
        """Of the machine's read rate; None when its data lies in caches."""
        return self.gbps / limits.dram_gbps if self.is_in_memory else None

    def compute_share(self, limits: Limits) -> float | None:
        """Of the peak of its arithmetic."""
        peak = limits.peak_gops.get(self.arithmetic or "", 0.0)
        return self.gops / peak if peak and self.gops is not None else None


class KernelBench:
    """Measures one kernel after the other; `say` hears each result as it comes."""

    def __init__(
        self, work: ModelWork, config: RunConfig, pool: Any, say: Callable[[KernelResult], None]
    ) -> None:
        self._work = work
        self._config = config
        self._pool = pool
        self._say = say
        self.limits = measure_limits(ARITHMETICS, pool)
        self.results: list[KernelResult] = []

    @property
    def _isa(self) -> str:
        return "" if self._config.engine.isa == "auto" else self._config.engine.isa

    def run(self) -> None:
        for (dtype, n, k), count in self._shapes().items():
            self._gemm(dtype, n, k, count)
        for context in CONTEXTS:
            for batch in BATCHES:
                self._attention(batch, context, 1)
        self._attention(1, 512, 512)
        self.limits = best_of(self.limits, measure_limits(ARITHMETICS, self._pool))
        for kernel, width in self._row_kernels():
            for rows in (1, 64):
                self._rows(kernel, width, rows)
        self.limits = best_of(self.limits, measure_limits(ARITHMETICS, self._pool))

    def _shapes(self) -> Mapping[tuple[str, int, int], int]:
        """Different products of the model, largest number of them first."""
        counts = Counter((m.dtype, m.n, m.k) for m in self._work.matrices)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def _add(
        self,
        kernel: str,
        shape: str,
        count: int,
        rate: tuple[int, float, int, float],
        arithmetic: str | None,
        *,
        is_in_memory: bool,
    ) -> None:
        rows, seconds, num_bytes, ops = rate
        gbps, gops = num_bytes / seconds * 1e-9, ops / seconds * 1e-9
        result = KernelResult(
            kernel=kernel,
            shape=shape,
            rows=rows,
            count=count,
            microseconds=seconds * 1e6,
            gbps=gbps,
            gops=gops if arithmetic else None,
            is_in_memory=is_in_memory,
            arithmetic=arithmetic,
        )
        self.results.append(result)
        self._say(result)

    def _gemm(self, dtype: str, n: int, k: int, count: int) -> None:
        precision = self._work.precision
        rates = machine.measure_linear(
            dtype,
            n,
            k,
            ROWS,
            self._pool,
            precision=precision,
            isa=self._isa,
            seconds=CALL_SECONDS,
            rotated_bytes=ROTATED_BYTES,
        )
        for rate in rates:
            self._add(
                "gemm", f"{dtype} {n} x {k}", count, rate, arithmetic_of(dtype, precision), is_in_memory=True
            )

    def _attention(self, batch: int, context: int, new_tokens: int) -> None:
        work, engine = self._work, self._config.engine
        rate = machine.measure_attention(
            work.num_heads,
            work.num_kv_heads,
            work.head_dim,
            batch,
            context,
            new_tokens,
            self._pool,
            kv_dtype=engine.kv_dtype,
            block_tokens=engine.kv_block_tokens,
            isa=self._isa,
            seconds=CALL_SECONDS,
            rotated_bytes=ROTATED_BYTES,
        )
        shape = f"{batch} x {context} tokens, {work.num_heads}/{work.num_kv_heads} heads x {work.head_dim}"
        if new_tokens > 1:
            shape = f"prompt of {new_tokens}, {work.num_heads}/{work.num_kv_heads} heads x {work.head_dim}"
        self._add("attention", shape, work.num_layers, rate, "fp32", is_in_memory=True)

    def _row_kernels(self) -> list[tuple[str, int]]:
        """Kernels that go over rows of activations, at the widths of the model."""
        width = max((m.k for m in self._work.matrices if m.is_head), default=0)
        hidden = max(m.k for m in self._work.matrices)
        used = sorted({arithmetic_of(m.dtype, self._work.precision) for m in self._work.matrices})
        kernels = [("rms_norm", width), ("swiglu", hidden)] if width else [("swiglu", hidden)]
        return [
            *kernels,
            *[(f"prepare_{a}", size) for a in used for size in sorted({width or hidden, hidden})],
        ]

    def _rows(self, kernel: str, width: int, rows: int) -> None:
        rate = machine.measure_rows(kernel, width, rows, self._pool, isa=self._isa, seconds=CALL_SECONDS)
        self._add(kernel, f"{width} values", self._work.num_layers, rate, None, is_in_memory=False)


def bench_kernels(
    config: RunConfig, model: LoadedModel, say: Callable[[KernelResult], None]
) -> tuple[list[KernelResult], Limits, str]:
    """All results, the limits, and a line about the machine."""
    pool = machine.thread_pool(config.engine.threads)
    executor = model.make_executor(pool)
    info = dict(getattr(executor, "info", None) or {})
    work = model_work(model, info, executor.cache_groups, config.engine.precision)
    if work is None:
        raise UsageError(f"{model.name} has no weights whose kernels could be measured", "-m MODEL")
    bench = KernelBench(work, config, pool, say)
    bench.run()
    here = machine.describe()
    about = f"{here.cpu}; {pool.num_threads} threads, {info['isa']}, {config.engine.precision}"
    return bench.results, bench.limits, about


# ---- showing -----------------------------------------------------------------------------------------------

HEAD: Final = ("kernel", "shape", "rows", "times", "µs", "GB/s", "Gop/s", "of memory", "of peak")


def row_of(result: KernelResult, limits: Limits) -> tuple[str, ...]:
    def share(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.0f} %"

    return (
        result.kernel,
        result.shape,
        str(result.rows),
        str(result.count),
        f"{result.microseconds:.1f}",
        f"{result.gbps:.1f}",
        "" if result.gops is None else f"{result.gops:.0f}",
        share(result.memory_share(limits)),
        share(result.compute_share(limits)),
    )


def limits_line(limits: Limits) -> str:
    peaks = ", ".join(f"{kind} {gops:.0f} Gop/s" for kind, gops in limits.peak_gops.items() if gops)
    return f"limits: memory {limits.dram_gbps:.1f} GB/s, {peaks or 'peaks not known'}"


def as_json(results: Sequence[KernelResult], limits: Limits, about: str) -> str:
    for result in results:
        assert math.isfinite(result.gbps)
    kernels = [
        {**asdict(r), "memory_share": r.memory_share(limits), "compute_share": r.compute_share(limits)}
        for r in results
    ]
    document = {"machine": about, "limits": limits.as_json(), "kernels": kernels}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
