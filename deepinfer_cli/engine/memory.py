"""`--max-memory`: how one bound on the whole process is shared out between weights, rows and the KV cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.errors import EXIT_REFUSED, ResourceError
from deepinfer_cli.results.writer import MAX_OPEN_BYTES

_MIB = 1 << 20
BUFFER_BYTES = 64 * _MIB  # activations, samplers, what the allocator keeps
_ROW_COPIES = 4  # a row is held as bytes, as fields, as text and as token ids
_ROWS_SHARE = 16  # a sixteenth of the bound is for rows read ahead
_LEAST_ROWS_BYTES = 8 * _MIB
_LEAST_ROW_BYTES = _MIB
_CONSTRAINT_BYTES_A_TOKEN = 800  # of the vocabulary: the constraint engine's own form of it, measured
_TEMPLATE_BYTES = 256 << 10  # a compiled constraint of some twenty keys, measured
KEPT_CONSTRAINTS = 32  # under --max-memory


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of private memory; what is left of `limit` may become KV cache."""

    limit: int
    weights: int
    program: int  # Python, tokenizer, template: what is there before the first row
    rows: int  # read ahead or waiting for their turn
    constraints: int = 0  # should a row ask for one: the vocabulary once more, and what is compiled
    buffers: int = BUFFER_BYTES

    @property
    def kv_bytes(self) -> int:
        return max(0, self.limit - self.weights - self.program - self.rows - self.constraints - self.buffers)

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "program": self.program,
            "rows in flight": self.rows,
            "constraints": self.constraints,
            "buffers": self.buffers,
        }
        taken = ", ".join(f"{name} {shown(size)}" for name, size in parts.items())
        return f"{shown(self.limit)}: {taken}; {shown(self.kv_bytes)} left for the KV cache"


def shown(num_bytes: int) -> str:
    return f"{num_bytes / _MIB:,.0f} MiB"


def plan_memory(
    limit: int, *, held: int, weights: int, max_row_bytes: int, vocab_size: int = 0
) -> MemoryPlan:
    """`held`: private bytes of the process with the weights in it. `vocab_size` 0: no constraints."""
    rows = open_bytes(limit) + _ROW_COPIES * max_row_bytes
    return MemoryPlan(limit, weights, max(0, held - weights), rows, constraint_bytes(vocab_size))


def constraint_bytes(vocab_size: int) -> int:
    """The processes that validate texts are not in it: they are processes of their own."""
    if not vocab_size:
        return 0
    return _CONSTRAINT_BYTES_A_TOKEN * vocab_size + KEPT_CONSTRAINTS * _TEMPLATE_BYTES


def open_bytes(limit: int) -> int:
    """Bound on rows read ahead and on finished rows that wait."""
    if not limit:
        return MAX_OPEN_BYTES
    return min(MAX_OPEN_BYTES, max(limit // _ROWS_SHARE, _LEAST_ROWS_BYTES))


def bounded_rows(config: RunConfig) -> RunConfig:
    """Under --max-memory the longest row shrinks with it, unless somebody said how long it may be."""
    limit = config.engine.max_memory
    if not limit or not config.is_default("max_row_bytes"):
        return config
    longest = min(config.rows.max_row_bytes, max(open_bytes(limit) // _ROW_COPIES, _LEAST_ROW_BYTES))
    return config.with_values({"max_row_bytes": longest}, Origin("default", "max_memory"))


def refuse(plan: MemoryPlan, needed: int, what: str) -> ResourceError:
    fixed = plan.weights + plan.program + plan.constraints + plan.buffers + needed
    least = max(fixed + plan.rows, fixed * _ROWS_SHARE // (_ROWS_SHARE - 2))  # rows grow with the bound
    return ResourceError(
        f"max_memory is too small for {what}: {plan}, and {shown(needed)} are needed",
        f"--max-memory {-(-least // _MIB)}MiB is the least; or lower "
        "--max-model-len, --max-row-bytes, or choose a smaller --kv-dtype",
        exit_code=EXIT_REFUSED,
    )


def private_bytes() -> int:
    """Memory that belongs to this process alone and cannot be read again from a file; 0 when unknown."""
    total = 0
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key in ("RssAnon", "RssShmem", "VmSwap"):
                total += int(value.split()[0]) * 1024
    except OSError:
        return 0
    return total
