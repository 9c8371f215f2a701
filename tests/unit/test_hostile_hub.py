"""A hub that stalls, lies, loops and hands the token around; and a cache that others have prepared."""

from __future__ import annotations

import hashlib
import multiprocessing
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.models import download, hub, hub_http
from deepinfer_cli.models.hub_http import HubFile, HubListing, HubRefusal, HubUnreachable, is_safe_name
from deepinfer_cli.models.resolve import resolve_model
from deepinfer_cli.models.wheel import DownloadError
from tests.support.hub_server import COMMIT, Hub, serving

BIG = bytes(range(256)) * 4_000  # 1 MB
NAME = "model.safetensors"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("DEEPINFER_CACHE", str(tmp_path / "cache"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hub_http.time, "sleep", lambda seconds: None)
    with serving(Hub({NAME: BIG})) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def get(said: list[str] | None = None, **options: Any) -> Path:
    said = [] if said is None else said
    plan = download.make_plan("org/model", say=said.append, **options)
    return download.fetch(plan, say=said.append, advance=lambda count: None).path


def partial_file() -> Path:
    name = hub.parse_hub_name("org/model")
    assert name is not None
    key = hashlib.sha256(BIG).hexdigest()[:16]
    return name.folder / COMMIT / f".{NAME}.{key}.part"


def test_a_transfer_that_stalls_is_broken_off_and_resumed(
    served: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_http, "STALL_SECONDS", 0.3)
    served.stalls, said = 2, []
    assert (get(said) / NAME).read_bytes() == BIG
    starts = [given for given in served.num_bytes_asked() if given]
    assert len(starts) == 2 and sum("broke at" in line for line in said) == 2


def test_a_hub_that_never_answers_is_unreachable(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_http, "STALL_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(HubUnreachable, match="cannot be reached") as caught:
            get()
    assert caught.value.exit_code == 1


def test_the_token_stays_with_the_hub(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files come from other hosts by redirect; those get no token."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    served.token = "hf_secret"
    with serving(Hub({NAME: BIG})) as other:
        served.elsewhere = other.url
        assert (get() / NAME).read_bytes() == BIG
        assert other.tokens and set(other.tokens) == {None}
    assert set(served.tokens) == {"Bearer hf_secret"}


def test_redirects_in_a_circle_end(served: Hub) -> None:
    served.loops = True
    with pytest.raises(HubRefusal, match="TooManyRedirects") as caught:
        get()
    assert caught.value.exit_code == 1 and len(served.requests) < 40


@pytest.mark.parametrize("place", ["file:///etc/passwd?", "ftp://127.0.0.1", "http://[", "gopher://x"])
def test_redirects_to_what_is_no_web_address_lead_nowhere(served: Hub, place: str) -> None:
    served.elsewhere = place
    with pytest.raises(DownloadError):
        get()
    assert not list(partial_file().parent.glob("*.safetensors"))


@pytest.mark.parametrize(
    "answer", [b"<html>please log in</html>", b"", b"[]", b"{}", b'{"siblings": 3}', b"\xff"]
)
def test_a_page_in_place_of_a_listing_is_told(served: Hub, answer: bytes) -> None:
    served.answer = answer
    with pytest.raises(HubRefusal) as caught:
        get()
    assert "\n" not in caught.value.message and len(caught.value.message) < 600


def test_a_page_in_place_of_a_file_is_refused(served: Hub) -> None:
    served.listing = served.info()
    page = b"<html>" + b"x" * (len(BIG) - 6)  # as long as the file
    served.files[NAME] = page
    with pytest.raises(DownloadError, match="arrived twice with the wrong bytes"):
        get()
    assert not (partial_file().parent / NAME).exists()


def test_content_that_changes_under_the_transfer_is_noticed(served: Hub) -> None:
    """The second half is another file's; the checksum tells, and the file is fetched anew."""
    served.listing, served.drops = served.info(), 1
    served.later, said = bytes(len(BIG)), []
    with pytest.raises(DownloadError, match="arrived twice with the wrong bytes"):
        get(said)
    assert any("wrong checksum; fetching it again" in line for line in said)
    assert list(partial_file().parent.iterdir()) == []


ENTRIES = [
    ({"rfilename": NAME, "size": "big"}, "bytes"),
    ({"rfilename": NAME, "size": -5}, "bytes"),
    ({"rfilename": NAME, "size": 2**63}, "bytes"),
    (
        {"rfilename": NAME, "size": 5, "lfs": {"sha256": "../../../x", "size": 5, "pointerSize": 1}},
        "checksum",
    ),
    ({"rfilename": NAME, "size": 5, "blobId": "../../../../evil"}, "checksum"),
    ({"rfilename": NAME, "size": 5}, "no checksum"),
    ({"rfilename": "x" * 300 + ".safetensors", "size": 5}, "unsafe"),
    ({"rfilename": "a/" * 50 + NAME, "size": 5}, "unsafe"),
    ({"rfilename": "\x1b[2J.safetensors", "size": 5}, "unsafe"),
    ({"rfilename": ["x"], "size": 5}, "refused|no sense"),
    ({}, "refused|no sense"),
]


@pytest.mark.parametrize(("entry", "said"), ENTRIES, ids=[str(i) for i in range(len(ENTRIES))])
def test_entries_of_a_listing_are_checked_before_they_name_anything(
    served: Hub, entry: dict[str, Any], said: str, tmp_path: Path
) -> None:
    served.listing = {**served.info(), "siblings": [entry]}
    with pytest.raises(HubRefusal, match=said) as caught:
        get()
    assert caught.value.message.isprintable() and len(caught.value.message) < 500
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_a_partial_file_that_is_a_link_is_not_followed(served: Hub, tmp_path: Path) -> None:
    """In a shared cache anybody may have put it there; the bytes must not go where it points."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    partial = partial_file()
    partial.parent.mkdir(parents=True)
    partial.symlink_to(precious)
    with pytest.raises(Exception, match="cannot write"):
        get()
    assert precious.read_text() == "mine" and not (partial.parent / NAME).exists()


def test_links_that_lead_nowhere_are_misses(served: Hub) -> None:
    folder = get()
    for target in ("nowhere", NAME):  # dangling, and to itself
        (folder / NAME).unlink()
        (folder / NAME).symlink_to(target)
        with pytest.raises(Exception, match="org/model"):
            resolve_model("org/model", None, print)
        assert (get() / NAME).read_bytes() == BIG
        assert not (folder / NAME).is_symlink()


def test_a_manifest_cannot_lead_out_of_the_cache(served: Hub, tmp_path: Path) -> None:
    folder = get()
    outside = tmp_path / "outside.gguf"
    outside.write_bytes(b"x")
    for name in (str(outside), "../../../../../outside.gguf"):
        (folder / hub.COMPLETE).write_text(f'{{"files": [{{"name": "{name}", "bytes": 1}}]}}')
        assert hub.cached_model(hub.parse_hub_name("org/model")) is None  # type: ignore[arg-type]


def test_names_on_the_command_line_cannot_lead_out_of_the_cache() -> None:
    for name in (
        "org/model:../../x.gguf",
        "org/model:/etc/passwd",
        "../x",
        "org/..",
        "org/model:a/../b.gguf",
    ):
        assert hub.parse_hub_name(name) is None
    assert is_safe_name("UD-Q4/model 1.gguf") and not is_safe_name("")


def _fetch(url: str, folder: str, results: Any) -> None:
    import os

    os.environ.update(HF_ENDPOINT=url, DEEPINFER_CACHE=folder)
    results.put((get() / NAME).read_bytes() == BIG)


def test_two_processes_that_want_the_same_file_both_get_it_whole(served: Hub, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    work = [
        context.Process(target=_fetch, args=(served.url, str(tmp_path / "cache"), results)) for _ in range(2)
    ]
    for process in work:
        process.start()
    assert [results.get(timeout=120) for _ in work] == [True, True]
    for process in work:
        process.join()
    assert sorted(p.name for p in partial_file().parent.iterdir()) == [hub.COMPLETE, NAME]


def test_a_lock_of_somebody_else_stops_no_reader(served: Hub) -> None:
    import fcntl

    folder = get()
    with partial_file().open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert get() == folder and get(offline=True) == folder
        assert resolve_model("org/model", None, print).path == folder


def test_the_key_of_a_partial_file_is_its_content() -> None:
    a, b = (HubFile(NAME, 5, digest * 64, None) for digest in "ab")
    assert a.key != b.key
    assert HubListing("org/model", COMMIT, (a,)).find(NAME) is a
