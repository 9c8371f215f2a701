"""Data sets from a server of ours that plays the hub: pinned commits, gates, faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from deepinfer_cli.errors import InputError
from deepinfer_cli.eval.data.hub import choose_files
from deepinfer_cli.eval.data.load import load_data
from deepinfer_cli.eval.tasks.registry import load_task
from deepinfer_cli.eval.types import HubSource
from tests.support.dataset_hub import FakeHub, serving

OLD, NEW = "1" * 40, "2" * 40
AIME = (Path(__file__).parent / "data/aime_format.jsonl").read_bytes()
NAME = "data/train.jsonl"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    fake = FakeHub(
        "MathArena/aime_2026",
        {"main": NEW, "v1": OLD, OLD: OLD, NEW: NEW},
        {NEW: {"README.md": b"#", NAME: AIME}, OLD: {NAME: AIME.split(b"\n")[0] + b"\n"}},
    )
    with serving(fake):
        monkeypatch.setenv("HF_ENDPOINT", fake.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield fake


def test_the_branch_is_resolved_to_a_commit_and_that_is_read(hub: FakeHub) -> None:
    data = load_data(load_task("aime2026")(), None, None)
    assert len(data.problems) == 30
    assert data.origin["commit"] == NEW
    assert data.origin["files"] == [NAME]
    reads = [r for r in hub.requests if "/resolve/" in r]
    assert reads and all(f"/resolve/{NEW}/" in r for r in reads)
    assert not any("README" in r for r in reads)


def test_a_pinned_revision_reads_the_old_commit(hub: FakeHub) -> None:
    for revision in ("v1", OLD):
        data = load_data(load_task("aime2026")(), None, revision)
        assert (data.origin["commit"], len(data.problems)) == (OLD, 1)
    assert "has 1 records, not 30" in data.warnings[0]


def test_the_same_file_is_not_fetched_twice(hub: FakeHub) -> None:
    load_data(load_task("aime2026")(), None, None)
    hub.requests.clear()
    load_data(load_task("aime2026")(), None, None)
    assert not any(r.startswith("GET /datasets") for r in hub.requests)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "GatedRepo", "is gated, and this account has no access"),
        (403, "GatedRepo", "is gated, and this account has no access"),
        (401, None, "answered 401"),
        (404, "RepoNotFound", "shows no data set"),
        (403, None, "answered 403"),
    ],
)
def test_missing_access_is_explained(hub: FakeHub, status: int, code: str | None, words: str) -> None:
    hub.repo = "Idavidrein/gpqa"
    hub.status, hub.error_code = status, code
    with pytest.raises(InputError) as caught:
        load_data(load_task("gpqa_diamond")(), None, None)
    assert words in caught.value.message
    hint = caught.value.hint or ""
    assert "accept its conditions" in hint and "hf auth login" in hint and "--data FILE" in hint


def test_an_unknown_revision_and_a_vanished_file(hub: FakeHub) -> None:
    with pytest.raises(InputError, match="has no revision v9"):
        load_data(load_task("aime2026")(), None, "v9")
    hub.missing.add(NAME)
    with pytest.raises(InputError, match="a listed file is not there"):
        load_data(load_task("aime2026")(), None, None)


def test_no_hub_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError) as caught:
        load_data(load_task("aime2026")(), None, None)
    assert "--data FILE" in (caught.value.hint or "")


def test_files_of_the_split_in_the_simplest_format() -> None:
    gpqa = HubSource("o/n", split="gpqa_diamond", config="gpqa_diamond")
    assert choose_files(gpqa, ["gpqa_main.csv", "gpqa_diamond.csv", "README.md"]) == ["gpqa_diamond.csv"]
    train = HubSource("o/n", split="train")
    both = ["data/train-0.parquet", "data/train-1.parquet", "data/test-0.parquet"]
    assert choose_files(train, both) == both[:2]
    assert choose_files(train, [*both, "data/train.jsonl"]) == ["data/train.jsonl"]
    assert choose_files(train, ["aime.csv"]) == ["aime.csv"]
    with pytest.raises(InputError, match="no data file of split train; it has no data files"):
        choose_files(train, ["README.md", ".gitattributes"])
