"""The comparison with peers: turns, shares, ratios, merging of parts, and the work they are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.bench.peers import engines, parts, record
from deepinfer_cli.bench.peers.__main__ import PROMPTS, our_engines
from deepinfer_cli.bench.peers.bounds import Shapes, amounts, read_shapes
from deepinfer_cli.bench.peers.deepinfer import DeepInferBatch, DeepInferSpeed
from deepinfer_cli.bench.peers.engines import Engine
from deepinfer_cli.bench.peers.job import Job
from deepinfer_cli.bench.work import Limits
from deepinfer_cli.bench.workloads import Workload
from deepinfer_cli.errors import EngineError
from tests.support.tiny_models import TinyLlama, cached


class Process:
    """Stands in for an engine's process: each answer costs what `cpu` says per token."""

    def __init__(self, name: str, log: list[str], cpu: float) -> None:
        self.name, self.log, self.cpu = name, log, cpu
        self.description = f"{name}, in a test"
        self.works: list[Any] = []
        self.prefix_cache: bool | None = None

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append(f"{self.name} closed")

    def ask(self, work: Any) -> dict[str, Any]:
        self.log.append(self.name)
        self.works.append(work)
        counts = [work["max_tokens"]] * len(work["prompts"]) if isinstance(work, dict) else [512]
        cost: dict[str, Any] = {
            "cpu_seconds": self.cpu * sum(counts),
            "wall_seconds": 2 * self.cpu * sum(counts),
        }
        if isinstance(work, dict):
            cost["num_output"] = counts
        return {"cost": cost, "busy_seconds": 0.0, "peak_rss_bytes": 100 * len(self.works)}


def engines_of(processes: list[Process], monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    by_name = {p.name: p for p in processes}

    def start(self: Engine, threads: int, mode: str, *, prefix_cache: bool) -> Process:
        by_name[self.name].prefix_cache = prefix_cache
        return by_name[self.name]

    monkeypatch.setattr(Engine, "start", start)
    limits = Limits(20.0, {"int8": 900.0, "bf16": 120.0, "fp32": 120.0})
    monkeypatch.setattr(parts, "measure_limits", lambda arithmetics, pool: limits)
    kinds = {"deepinfer-fast": "deepinfer"}
    return [Engine(p.name, kinds.get(p.name, "llama.cpp"), Path("m.gguf")) for p in processes]


def measured(
    workload: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    job: Job | None = None,
    rounds: int = 3,
    threads: int = 1,
) -> tuple[dict[str, Any], list[str], list[Process]]:
    log: list[str] = []
    processes = [Process("deepinfer-fast", log, 1e-3), Process("llama.cpp-q4_0", log, 3e-3)]
    turns = engines_of(processes, monkeypatch)
    part = parts.measure(workload, turns, num_threads=threads, num_rounds=rounds, job=job, say=lambda _: None)
    return part, log, processes


def test_engines_take_turns_a_b_b_a_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    part, log, processes = measured("prefill-512", monkeypatch)
    a, b = "deepinfer-fast", "llama.cpp-q4_0"
    assert log == [a, b, a, b, b, a, a, b, f"{b} closed", f"{a} closed"]
    assert processes[0].works == ["prefill-512"] * 4
    runs = part["engines"][a]["runs"]
    assert len(runs) == 3 and runs[0]["num_tokens"] == 512 and runs[0]["cpu_seconds"] == 0.512
    assert part["engines"][a]["peak_rss_bytes"] == 400
    assert part["limits"]["dram_gbps"] > 0 and part["machine"]["num_cpus"]


def test_prefill_runs_without_prefix_cache_and_decode_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, processes = measured("prefill-512", monkeypatch, rounds=1)
    assert [process.prefix_cache for process in processes] == [False, False]
    _, _, processes = measured("decode-8", monkeypatch, rounds=1)
    assert [process.prefix_cache for process in processes] == [True, True]


@pytest.mark.parametrize(
    ("kind", "prefix_cache", "settings"),
    [
        ("deepinfer", True, ("precision=fast",)),
        ("deepinfer", False, ("precision=fast", "prefix_cache=false")),
        ("openvino", False, ()),
    ],
)
def test_only_ours_is_told_to_leave_its_prefix_cache_out(
    kind: str, prefix_cache: bool, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(engines, "LivePeer", lambda *arguments, **_: asked.append(arguments))
    own = ("precision=fast",) if kind == "deepinfer" else ()
    Engine("name", kind, Path("m.gguf"), settings=own).start(1, "steps", prefix_cache=prefix_cache)
    assert asked == [(kind, "m.gguf", 1, "steps", *settings)]


def test_a_ratio_is_their_cost_over_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    part, _, _ = measured("prefill-512", monkeypatch)
    (row,) = record.rows_of(part, None)
    assert (row.ours, row.peer, row.num_pairs) == ("deepinfer-fast", "llama.cpp-q4_0", 3)
    assert row.ratio == pytest.approx(3.0) and row.low == pytest.approx(3.0)
    assert row.ours_rate == pytest.approx(1000, rel=1e-3) and row.rss_ratio == 1.0


def test_a_job_is_warmed_up_short_and_counted_by_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    job = parts.job_of("job-200", [[1, 2, 3]] * 100, [2])
    part, _, processes = measured("job-200", monkeypatch, job=job, rounds=1)
    warm, whole = processes[1].works
    assert len(warm["prompts"]) == 64 and warm["max_tokens"] == 2
    assert len(whole["prompts"]) == 100 and whole["max_tokens"] == 64 and whole["stop_token_ids"] == ()
    assert part["engines"]["deepinfer-fast"]["runs"][0]["num_tokens"] == 6400
    assert parts.job_of("job-200-eos", [[1]], [2]).stop_token_ids == (2,)


def test_walls_of_more_threads_count_only_on_a_quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    part, _, _ = measured("prefill-512", monkeypatch, threads=2)
    for share, is_measurable in ((0.09, True), (0.11, False)):
        for engine in part["engines"].values():
            for run in engine["runs"]:
                run["others_share"] = share
        (row,) = record.rows_of(part, None)
        assert row.is_measurable is is_measurable
        assert row.ours_rate == pytest.approx(500, rel=1e-3)  # by the wall
        kept = {"parts": [part], "quality": []}
        assert ("not measurable" in record.table(kept, None)) is not is_measurable


def test_parts_of_several_invocations_stand_side_by_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "deep" / "peers.json"
    for index, workload in enumerate(("prefill-512", "decode-8", "prefill-512")):
        part, _, _ = measured(workload, monkeypatch, rounds=1)
        part["time"] = f"2026-12-01T00:00:0{index}Z"
        kept = record.load(path)
        record.add_part(kept, part)
        kept["summary"] = record.summary(kept, None)
        record.save(kept, path)
    found = json.loads(path.read_text())
    assert [p["workload"] for p in found["parts"]] == ["decode-8", "prefill-512"]
    assert [r["workload"] for r in found["summary"]] == ["prefill-512", "decode-8"]
    assert found["summary"][0]["time"].endswith("02Z")  # the later one counts


def test_the_table_has_speed_and_quality_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    part, _, _ = measured("prefill-512", monkeypatch)
    shapes = Shapes(2e6, 1e5, 1e6, 100.0, 10.0)
    quality = [{"engine": "deepinfer-fast", "mean_kl": 2.5e-3, "top1": 0.97}]
    text = record.page({"what": record.WHAT, "parts": [part], "quality": quality}, shapes)
    assert text.startswith("# ") and record.WHAT in text
    assert "2.50e-03 (97.00) / -" in text and "**3.00** [3.00, 3.00]" in text
    ops, num_bytes = amounts("prefill-512", shapes)
    assert ops == 512 * 2e6 + 1e5 + 10.0 * 512 * 513 / 2 and num_bytes == 1e6
    ops, num_bytes = amounts("decode-8", shapes)
    seen = 8 * sum(range(129, 129 + 24))
    assert ops == 8 * 24 * 2.1e6 + 10.0 * seen and num_bytes == 24 * 1e6 + 100.0 * seen


def test_names_can_be_cut_short() -> None:
    assert record.names_of(["decode", "start"], parts.NAMES) == [
        "decode-1",
        "decode-8",
        "decode-32",
        "decode-64",
        "start",
    ]
    assert record.names_of([], ("a", "b")) == ["a", "b"]


def test_our_precisions_are_named_once_each() -> None:
    engines = our_engines(Path("m.gguf"), ["default", "fast", "bf16"], ["kv_dtype=int8"])
    assert [e.name for e in engines][-1] == "deepinfer-bf16-kv_dtype=int8"
    assert len({e.name for e in engines}) == len(engines)
    assert engines[-1].settings == ("kv_dtype=int8", "precision=bf16")


def test_the_prompts_are_all_there() -> None:
    rows = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 200 and len({row["id"] for row in rows}) == 200
    assert all(row["prompt"].endswith("<|im_start|>assistant\n") for row in rows)


def test_our_engine_under_jobs_and_steps(tiny_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cached(TinyLlama(), tiny_root, "gguf", "Q4_0")
    batch = DeepInferBatch(path, 1, ["precision=fast"])
    prompts = [[5, 6, 7], [9] * 30, [11]]
    cost = batch.run(Job(prompts, 6, 2))
    assert cost.num_output == [6, 6, 6] and cost.cpu_seconds is not None and cost.cpu_seconds > 0
    assert (
        batch.run(Job(prompts, 6, 2, stop_token_ids=tuple(range(TinyLlama().vocab_size)))).num_output
        == [1] * 3
    )
    assert "precision fast" in batch.describe()
    monkeypatch.setattr("deepinfer_cli.bench.peers.deepinfer.token_at", lambda s, p: (s * 7 + p * 3) % 300)
    speed = DeepInferSpeed(path, 1, [])
    for is_prefill in (True, False):
        assert speed.run(Workload("w", 2, 40, 8, is_prefill)).cpu_seconds > 0


def test_shapes_are_those_of_the_file(tiny_root: Path) -> None:
    model = TinyLlama()
    shapes = read_shapes(cached(model, tiny_root, "gguf", "F32"))
    linear = sum(n * k for name, (n, k) in model.shapes().items() if name != "model.embed_tokens")
    assert shapes.ops_per_token == 2 * linear
    assert shapes.ops_per_logits == 2 * model.vocab_size * model.hidden
    assert shapes.weight_bytes == 2 * (shapes.ops_per_token + shapes.ops_per_logits)


def starting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]) -> parts._Starter:
    monkeypatch.setattr(Engine, "first_token_command", lambda *_: command)
    return parts._Starter(Engine("deepinfer-fast", "deepinfer", Path("m.gguf")), 1, tmp_path)


def test_a_start_ends_with_the_first_byte(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, peak = starting(monkeypatch, tmp_path, ["sh", "-c", "printf x; sleep 0.5"]).run()
    assert run.wall_seconds < 0.5 and peak > 0
    with pytest.raises(EngineError, match="ended with 3 without a token"):
        starting(monkeypatch, tmp_path, ["sh", "-c", "exit 3"]).run()
