from __future__ import annotations

from pathlib import Path

import pytest

from deepinfer_cli import _native, machine


def test_levels_start_with_scalar_and_hold_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPINFER_ISA", raising=False)
    levels = machine.isa_levels()
    assert levels[0] == "scalar"
    assert machine.default_isa() in levels[-2:]
    monkeypatch.setenv("DEEPINFER_ISA", "scalar")
    assert machine.default_isa() == "scalar"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("150000 100000\n", 1), ("400000 100000", 4), ("max 100000", None), ("50000 100000", 1), ("", None)],
)
def test_cpu_quota(tmp_path: Path, text: str, cpus: int | None) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(text)
    assert machine._cpu_quota(path) == cpus


def test_machine_numbers_are_sane() -> None:
    assert machine.num_cores() >= 1
    assert machine.available_memory_bytes() > 1 << 20
    assert machine.memory_read_gbps(0.01, _native.ThreadPool(1)) > 0.1


def test_every_kernel_equals_its_scalar_twin() -> None:
    checks = machine.kernel_checks()
    assert [check for check in checks if not check.ok] == []
    assert {check.isa for check in checks} == set(machine.isa_levels()) - {"scalar"}
