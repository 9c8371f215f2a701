"""What this machine is: kernel levels, cores, memory and how fast it reads memory."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepinfer_cli._native import ThreadPool


@dataclass(frozen=True)
class KernelCheck:
    """One kernel of one level against its scalar twin."""

    kernel: str
    isa: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Machine:
    """What can be told without the native core."""

    system: str  # "Linux 6.1"
    arch: str
    cpu: str
    num_cores: int  # that this process may use
    memory_bytes: int  # 0 = unknown
    memory_free_bytes: int  # that can be taken without swapping


def describe() -> Machine:
    memory = _meminfo()
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        arch=platform.machine(),
        cpu=cpu_name() or "unknown",
        num_cores=num_cores(),
        memory_bytes=memory.get("MemTotal", 0),
        memory_free_bytes=memory.get("MemAvailable", 0),
    )


def _meminfo() -> dict[str, int]:
    """Lines of /proc/meminfo, in bytes."""
    found = {}
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            key, _, value = line.partition(":")
            words = value.split()
            if words and words[0].isdigit():
                found[key] = int(words[0]) * 1024
    except OSError:
        pass
    return found


def native_problem() -> str | None:
    """Why the native core cannot be loaded, None when it can."""
    try:
        from deepinfer_cli import _native  # noqa: F401
    except ImportError as error:
        return str(error)
    return None


def num_cores() -> int:
    """Cores that this process may use: its affinity, cut by a control group's CPU quota."""
    cores = len(os.sched_getaffinity(0))
    quota = _cpu_quota(Path("/sys/fs/cgroup/cpu.max"))
    return max(1, min(cores, quota)) if quota is not None else cores


def _cpu_quota(path: Path) -> int | None:
    """Whole CPUs that a cgroup file like "150000 100000" allows; None without a limit."""
    try:
        quota, period = path.read_text().split()[:2]
        return max(1, int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def cpu_name() -> str:
    """The processor as the kernel names it, "" when it does not."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Processor"):
            return value.strip()
    return ""


def isa_levels() -> list[str]:
    """Kernel levels this CPU can run, simplest first."""
    from deepinfer_cli import _native

    return _native.cpu_isa_levels()


def default_isa() -> str:
    from deepinfer_cli import _native

    return _native.default_isa()


def available_memory_bytes() -> int:
    """Memory this process can still get, within its control group."""
    from deepinfer_cli import _native

    return _native.available_memory_bytes()


def kernel_checks() -> list[KernelCheck]:
    """Every kernel of every level this CPU can run, against the scalar one."""
    from deepinfer_cli import _native

    return [KernelCheck(*result) for result in _native.kernel_self_test()]


def memory_read_gbps(seconds: float = 0.2, pool: ThreadPool | None = None) -> float:
    """Gigabytes (10^9) per second that all cores read together; wall time, so other jobs show in it."""
    from deepinfer_cli import _native

    return _native.dram_read_gbps(seconds, pool or _native.ThreadPool(num_cores()))


def peak_gops(kind: str, seconds: float = 0.1, pool: ThreadPool | None = None) -> float:
    """10^9 operations per second that the cores do in registers; kind: int8, bf16 or fp32; 0 = unknown."""
    from deepinfer_cli import _native

    return _native.peak_gops(kind, seconds, pool or _native.ThreadPool(num_cores()))


def thread_pool(num_threads: int) -> ThreadPool:
    """A pool of so many threads; 0 = the cores this process may use."""
    from deepinfer_cli import _native

    return _native.ThreadPool(num_threads or num_cores())


KernelRate = tuple[int, float, int, float]  # rows, seconds of a call, bytes it must read, operations


def measure_linear(
    dtype: str, n: int, k: int, rows: Sequence[int], pool: ThreadPool, **more: Any
) -> list[KernelRate]:
    """Products of so many rows of activations with one weight [n, k]; `more`: precision, isa, seconds, ..."""
    from deepinfer_cli import _native

    return _native.measure_linear(dtype, n, k, list(rows), pool, **more)


def measure_attention(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    num_sequences: int,
    context: int,
    new_tokens: int,
    pool: ThreadPool,
    **more: Any,
) -> KernelRate:
    """Attention of one layer; `more`: kv_dtype, block_tokens, isa, seconds, rotated_bytes."""
    from deepinfer_cli import _native

    return _native.measure_attention(
        num_heads, num_kv_heads, head_dim, num_sequences, context, new_tokens, pool, **more
    )


def measure_rows(kernel: str, width: int, num_rows: int, pool: ThreadPool, **more: Any) -> KernelRate:
    """A kernel that goes over rows of `width` values; `more`: isa, seconds."""
    from deepinfer_cli import _native

    return _native.measure_rows(kernel, width, num_rows, pool, **more)
