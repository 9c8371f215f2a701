"""Sweep files: what is read, and where every complaint points."""

from __future__ import annotations

import pytest

from deepinfer_cli.bench.spec import BUILT_IN, Slo, Sweep
from deepinfer_cli.bench.sweep_file import parse_sweep
from deepinfer_cli.config.settings import EngineConfig
from deepinfer_cli.errors import ConfigError


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_sweep(text, "s.yaml")
    return f"{caught.value.message} / {caught.value.hint}"


def test_a_whole_file() -> None:
    found = parse_sweep(
        "sweep: {concurrency: [1, 8], chunk: [64, 128]}\n"
        "fixed: {output_len: 16, prefix_cache: off, precision: bf16}\n"
        "slo: {ttft_ms: 500}\nprice_per_hour: 0.5\nbudget_s: 90\n",
        "s.yaml",
    )
    assert found == Sweep(
        {"concurrency": (1, 8), "prefill_chunk": (64, 128)},
        {"output_len": 16, "prefix_cache": False, "precision": "bf16"},
        Slo(ttft_ms=500.0),
        0.5,
        90.0,
    )
    cells = found.cells(EngineConfig())
    assert [tuple(c.swept.values()) for c in cells] == [(1, 64), (1, 128), (8, 64), (8, 128)]
    assert cells[3].engine.prefill_chunk == 128 and not cells[3].engine.prefix_cache
    assert cells[3].load.output_len == 16 and cells[3].num_prompts == 16


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sweep: {concurency: [1]}", "s.yaml:1:9: unknown key 'concurency' / did you mean concurrency?"),
        ("sweeps: {}", "s.yaml:1:1: unknown section 'sweeps' / did you mean sweep?"),
        ("sweep: {concurrency: 8}", "s.yaml:1:22: sweep.concurrency must be a list of values"),
        ("sweep: {concurrency: []}", "sweep.concurrency has no values"),
        ("sweep: {concurrency: [1, 1]}", "s.yaml:1:26: sweep.concurrency has 1 twice"),
        ("sweep: {concurrency: [0]}", "s.yaml:1:23: concurrency must be an integer in [1, 65536], got 0"),
        ("sweep: {input_len: [1.5]}", "input_len must be an integer"),
        ("sweep: {repetitions: [1, 2]}", "repetitions is the same in every cell"),
        ("sweep: {chunk: [1], prefill_chunk: [2]}", "the same key"),
        ("sweep: {threads: [1]}\nfixed: {threads: 2}", "s.yaml:2:9: threads is both in"),
        ("fixed: {output_len: [1, 2]}", "output_len must be an integer"),
        ("fixed: {}\nslo: {ttft: 5}", "unknown limit 'ttft' / did you mean ttft_ms?"),
        ("fixed: {}\nprice_per_hour: -1", "price_per_hour must be a number"),
        ("fixed: {}\nbudget_s: 0", "budget_s must be a number"),
        ("slo: {}", "no `sweep:` and no `fixed:`"),
        ("", "the sweep file is empty"),
        ("[1]", "the sweep file must be a mapping"),
        ("sweep: {concurrency: [1], concurrency: [2]}", "'concurrency' appears twice"),
        ("sweep: {input_len: [" + ", ".join(map(str, range(1, 1002))) + "]}", "1,001 cells; at most 1,000"),
        ("sweep: {concurrency: [1", "not valid YAML"),
    ],
)
def test_complaints(text: str, says: str) -> None:
    assert says in refusal(text)


def test_the_built_in_sweep_is_a_sweep_like_any_other() -> None:
    cells = BUILT_IN.cells(EngineConfig())
    assert len(cells) == BUILT_IN.num_cells == 8
    assert len({cell.key({}) for cell in cells}) == 8


def test_a_key_changes_with_what_is_measured_and_only_with_that() -> None:
    (one,) = Sweep().cells(EngineConfig())
    (more,) = Sweep(fixed={"repetitions": 9}).cells(EngineConfig())
    (warm,) = Sweep(fixed={"prompts": "repeated"}).cells(EngineConfig())
    (chunk,) = Sweep().cells(EngineConfig(prefill_chunk=64))
    assert one.key({}) == more.key({})
    assert len({one.key({}), warm.key({}), chunk.key({}), one.key({"build": 2})}) == 4
