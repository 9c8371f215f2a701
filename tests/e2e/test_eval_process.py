"""`deepinfer eval` as a process: streams, exit codes, a kill in the middle, and a hub on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.dataset_hub import FakeHub, serving
from tests.support.runs import command, deepinfer, environment

AIME = Path(__file__).parents[1] / "eval/data/aime_format.jsonl"
SAME = ("samples.jsonl", "summary.json", "report.html", "eval.json")


def eval_fake(*args: str | Path, **kwargs: Any) -> Any:
    return deepinfer("eval", *args, "--model", "fake", "--max-tokens", "40", **kwargs)


def kill_after(num_samples: int, folder: Path, args: list[str], how: signal.Signals) -> int:
    """Starts an evaluation and sends it a signal once so many samples are on the disk; its exit code."""
    path = folder / "samples.jsonl"
    with subprocess.Popen(
        args, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if path.exists() and path.read_bytes().count(b"\n") >= num_samples:
                break
            time.sleep(0.01)
        process.send_signal(how)
        return process.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_evaluation_goes_on_to_the_same_files(tmp_path: Path, how: signal.Signals) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    flags = ["aime2026", "--data", str(AIME), "-n", "4", "--max-tokens", "40", "--second-opinion", "off"]
    assert deepinfer("eval", *flags, "-m", "fake", "-o", whole).code == 0
    slow = [*flags, "-m", "fake:0.0005", "--max-num-seqs", "8", "-o", str(broken)]
    code = kill_after(20, broken, command("eval", *slow), how)
    assert code == (-9 if how is signal.SIGKILL else 128 + how)
    num_before = (broken / "samples.jsonl").read_bytes().count(b"\n")
    # A polite signal lets what is in the engine finish, which may be all of it.
    assert 20 <= num_before <= (119 if how is signal.SIGKILL else 120)
    done = deepinfer("eval", *slow, "--resume")
    assert done.code == 0, done.stderr
    assert f"{num_before} samples are there already, {120 - num_before} to go" in done.stderr
    for name in SAME:
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name


def test_stdout_holds_the_folder_and_stderr_the_talk(tmp_path: Path) -> None:
    done = eval_fake("smoke", "--progress", "json", cwd=tmp_path)
    assert done.code == 0
    assert done.stdout == b"eval-smoke-fake\n"
    assert '"note": "score so far 0.0 %"' in done.stderr
    assert "smoke test: avg@1" in done.stderr
    assert sorted(p.name for p in (tmp_path / "eval-smoke-fake").iterdir()) == [
        "config.yaml",
        "eval.json",
        "report.html",
        "run.json",
        "samples.jsonl",
        "summary.json",
    ]
    again = eval_fake("smoke", cwd=tmp_path)
    assert again.code == 2
    assert "hint: --resume goes on with it, --overwrite replaces it" in again.stderr
    assert eval_fake("smoke", "--overwrite", "--min-score", "99%", cwd=tmp_path).code == 4
    rescored = deepinfer("eval", "--rescore", "eval-smoke-fake", cwd=tmp_path)
    assert rescored.code == 0
    assert "0 of 60 verdicts changed" in rescored.stderr
    compared = deepinfer("eval", "compare", "eval-smoke-fake", "eval-smoke-fake", cwd=tmp_path)
    assert compared.code == 0
    assert b"may be chance" in compared.stdout


def test_the_written_config_runs_again(tmp_path: Path) -> None:
    flags = ("--seed", "5", "--temperature", "0.7", "-n", "2", "--second-opinion", "off")
    assert eval_fake("smoke", "-o", "a", *flags, cwd=tmp_path).code == 0
    done = deepinfer("eval", "smoke", "-c", "a/config.yaml", "-o", "b", *flags[-2:], cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert (tmp_path / "a/samples.jsonl").read_bytes() == (tmp_path / "b/samples.jsonl").read_bytes()


def test_rows_that_cannot_run_are_errors_by_name_and_exit_code_3(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    long = {"prompt": "word " * 2000, "answer": "x"}
    bad = {"prompt": "p", "answer": "x", "temperature": -1}
    good = {"prompt": "p", "answer": "x"}
    path.write_text("".join(json.dumps(r) + "\n" for r in (long, bad, good)))
    done = eval_fake("custom", "--data", path, "-o", tmp_path / "e")
    assert done.code == 3
    assert "2 samples or judgements failed (exit code 3)" in done.stderr
    samples = [json.loads(line) for line in (tmp_path / "e/samples.jsonl").read_text().splitlines()]
    assert [s["verdict"] for s in samples[:2]] == ["error", "error"]
    assert samples[0]["error"]["code"] == "context_overflow"
    assert samples[1]["error"]["field"] == "temperature"


def hub_environment(hub: FakeHub, home: Path) -> Mapping[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}


def test_a_hub_of_our_own_serves_the_set_at_a_pinned_commit(tmp_path: Path) -> None:
    first, second = "a" * 40, "b" * 40
    data = AIME.read_bytes()
    hub = FakeHub("MathArena/aime_2026", {"main": first, first: first}, {first: {"data/train.jsonl": data}})
    with serving(hub):
        env = hub_environment(hub, tmp_path / "home")
        args = ("aime2026", "-n", "2", "-o", tmp_path / "e", "--second-opinion", "off")
        done = eval_fake(*args, env=env)
        assert done.code == 0, done.stderr
        assert f"30 problems x 2 samples, from MathArena/aime_2026 at {first[:12]}" in done.stderr
        identity = json.loads((tmp_path / "e/eval.json").read_text())
        assert identity["data"]["commit"] == first
        # The branch moves on; the evaluation does not.
        hub.revisions.update({"main": second, second: second})
        hub.files[second] = {"data/train.jsonl": data.replace(b"Find", b"Determine")}
        more = eval_fake(*("aime2026", "-n", "3", *args[3:], "--resume"), env=env)
        assert more.code == 0, more.stderr
        assert json.loads((tmp_path / "e/summary.json").read_text())["num_samples"] == 90


@pytest.mark.parametrize("status", [401, 403, 404])
def test_missing_access_is_one_sentence_and_a_hint(tmp_path: Path, status: int) -> None:
    code = "RepoNotFound" if status == 404 else "GatedRepo"
    hub = FakeHub("Idavidrein/gpqa", {}, {}, status=status, error_code=code)
    with serving(hub):
        done = eval_fake("gpqa_diamond", cwd=tmp_path, env=hub_environment(hub, tmp_path / "home"))
    assert done.code == 2
    assert done.stdout == b""
    assert [line.split(":")[0].strip() for line in done.stderr.splitlines()] == ["error", "hint"]
    assert "--data FILE" in done.stderr
    assert not [p for p in tmp_path.iterdir() if p.name != "home"]
