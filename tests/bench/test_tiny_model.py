"""Kernels and roofline on a small generated model: the counts are those of its shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.bench.kernels import ROWS
from tests.support.runs import deepinfer
from tests.support.tiny_models import TinyLlama, cached

MODEL = TinyLlama()


@pytest.fixture(scope="module", params=[("gguf", "Q4_0", "int8"), ("safetensors", "BF16", "bf16")])
def tiny(request: pytest.FixtureRequest, tiny_root: Path) -> tuple[Path, str]:
    kind, fmt, arithmetic = request.param
    return cached(MODEL, tiny_root, kind, fmt), arithmetic


@pytest.mark.slow
def test_kernels_cover_every_shape_of_the_model(tiny: tuple[Path, str]) -> None:
    path, arithmetic = tiny
    done = deepinfer("bench", "kernels", "--model", path, "--threads", "1", "--format", "json")
    assert done.code == 0, done.stderr
    document = json.loads(done.stdout)
    gemms = [k for k in document["kernels"] if k["kernel"] == "gemm"]
    shapes = {k["shape"].split(" ", 1)[1]: k["count"] for k in gemms}
    wanted: dict[str, int] = {}
    for n, k in MODEL.shapes().values():  # the tied embedding is the head
        wanted[f"{n} x {k}"] = wanted.get(f"{n} x {k}", 0) + 1
    assert shapes == wanted
    assert len(gemms) == len(wanted) * len(ROWS)
    assert {k["arithmetic"] for k in gemms} <= {arithmetic, "int8", "bf16"}
    for kernel in document["kernels"]:
        assert kernel["microseconds"] > 0 and kernel["gbps"] >= 0
    attention = [k for k in document["kernels"] if k["kernel"] == "attention"]
    assert len(attention) == 5 and all(k["count"] == MODEL.num_layers for k in attention)
    names = {k["kernel"] for k in document["kernels"]}
    assert {"rms_norm", "swiglu", f"prepare_{arithmetic}"} <= names


@pytest.mark.slow
def test_kernels_as_a_table(tiny: tuple[Path, str]) -> None:
    done = deepinfer("bench", "kernels", "--model", tiny[0], "--threads", "1")
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("| kernel | shape | rows |") and len(lines) > 20
    assert "limits: memory" in done.stderr
    assert deepinfer("bench", "kernels", "--model", tiny[0], "--format", "csv").code == 2


def measured(path: Path, *args: str) -> dict[str, Any]:
    load = (
        "--num-prompts",
        "3",
        "--input-len",
        "20",
        "--output-len",
        "5",
        "--repetitions",
        "1",
        "--threads",
        "1",
    )
    done = deepinfer("bench", "--model", path, *load, *args, "--format", "json")
    assert done.code == 0, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    values: dict[str, Any] = cell["values"]
    return values


@pytest.mark.slow
def test_operations_and_bytes_are_those_of_the_shapes(tiny: tuple[Path, str]) -> None:
    values = measured(tiny[0], "--concurrency", "1")
    shapes = MODEL.shapes()
    head = 2 * shapes["model.embed_tokens"][0] * shapes["model.embed_tokens"][1]
    body = sum(2 * n * k for name, (n, k) in shapes.items() if name != "model.embed_tokens")
    tokens, rows = 3 * (20 + 4), 3 * 5
    seen = 3 * (20 * 21 / 2 + 21 + 22 + 23 + 24)
    attention = 4 * MODEL.num_layers * MODEL.num_heads * MODEL.head_dim * seen
    assert values["roofline"]["ops"] == pytest.approx(tokens * body + rows * head + attention)
    kv = 2 * 2 * MODEL.num_layers * MODEL.num_kv_heads * MODEL.head_dim
    read = 3 * (21 + 22 + 23 + 24) * kv
    assert values["roofline"]["bytes"] == pytest.approx(3 * 5 * values["memory"]["weight_bytes"] + read)
    assert values["memory"]["weight_bytes"] > 0 and values["memory"]["kv_pool_bytes"] > 0
    assert values["memory"]["peak_rss_bytes"] > values["memory"]["weight_bytes"]


@pytest.mark.slow
def test_requests_in_company_do_the_same_work_and_read_no_more(tiny: tuple[Path, str]) -> None:
    alone, together = (measured(tiny[0], "--concurrency", c) for c in ("1", "3"))
    assert together["roofline"]["ops"] == alone["roofline"]["ops"]
    # How many steps they share depends on how soon each is submitted; never does sharing read more.
    assert together["roofline"]["bytes"] <= alone["roofline"]["bytes"]
    assert together["lengths"] == alone["lengths"]
