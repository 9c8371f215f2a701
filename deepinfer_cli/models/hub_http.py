"""Talking to a model hub: listings, headers by range, and files that resume where they broke off.

`huggingface_hub` names the endpoint, holds the token and classifies the errors. The transfer of files is
ours, since three things are wanted at once: a checksum while streaming, a resume keyed by content, and
nothing under the final name before it is proved whole.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from deepinfer_cli.errors import DeepInferError, in_short
from deepinfer_cli.models.cache import cannot_write, publish
from deepinfer_cli.models.wheel import DownloadError

MAX_ATTEMPTS = 6  # in a row without a single new byte
STALL_SECONDS = 30.0  # without an answer, or without a byte of one: the connection counts as broken
MAX_FILES = 100_000  # of a repository
MAX_FILE_BYTES = 1 << 50
PIECE_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHA1 = re.compile(r"[0-9a-f]{40}")
_MAX_NAME_BYTES = 200  # the name of a partial file is longer, and 255 are the most that a disk takes
_MAX_NAME_PARTS = 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class HubRefusal(DownloadError):
    """The hub answered, and the answer is no: missing, private, gated. Never hidden by a cache."""


class HubUnreachable(DownloadError):
    """No answer: a network that is down. A complete cache may stand in."""


@dataclass(frozen=True, slots=True)
class HubFile:
    name: str  # path inside the repository
    num_bytes: int
    sha256: str | None  # of large files
    git_sha1: str | None  # of small ones: sha1("blob SIZE\\0" + bytes)

    @property
    def key(self) -> str:
        """Names the content, so that a partial file is only ever continued with the same one."""
        return (self.sha256 or self.git_sha1 or "unhashed")[:16]

    def hasher(self) -> Any:
        if self.sha256 is None and self.git_sha1 is not None:
            return hashlib.sha1(f"blob {self.num_bytes}\0".encode(), usedforsecurity=False)
        return hashlib.sha256()

    @property
    def digest(self) -> str | None:
        return self.sha256 or self.git_sha1


@dataclass(frozen=True, slots=True)
class HubListing:
    repo: str
    commit: str
    files: tuple[HubFile, ...]

    def find(self, name: str) -> HubFile | None:
        return next((file for file in self.files if file.name == name), None)


def is_offline() -> bool:
    """Whether the environment forbids every connection."""
    return os.environ.get("HF_HUB_OFFLINE", "").strip().upper() in ("1", "TRUE", "YES", "ON")


def _endpoint() -> str | None:
    """Another hub, or a mirror; read when it is needed, not when the library happens to be imported."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def list_files(repo: str, revision: str) -> HubListing:
    """Commit and files of a revision. Raises HubRefusal or HubUnreachable."""
    from huggingface_hub import HfApi

    with hub_errors(repo, revision):
        try:
            info = HfApi(endpoint=_endpoint()).model_info(
                repo, revision=revision, files_metadata=True, timeout=STALL_SECONDS
            )
        except (AttributeError, KeyError, TypeError) as error:  # of the library, over JSON of another shape
            raise ValueError(f"{type(error).__name__}: {error}") from None
    if not info.sha or not re.fullmatch(r"[0-9a-f]{40}", info.sha):
        raise HubRefusal(f"the hub gave no commit for {repo} at {revision}")
    siblings = info.siblings or []
    if len(siblings) > MAX_FILES:
        raise HubRefusal(f"{repo}: refused, the hub lists {len(siblings):,} files")
    return HubListing(repo, info.sha, tuple(_file(repo, sibling) for sibling in siblings))


def _file(repo: str, sibling: Any) -> HubFile:
    """One entry of a listing, its words checked: they become names on this disk."""
    large = sibling.lfs
    sha256 = large.get("sha256") if isinstance(large, dict) else getattr(large, "sha256", None)
    git_sha1 = None if sha256 else sibling.blob_id
    name, size = sibling.rfilename, sibling.size or 0
    if not isinstance(name, str) or not is_safe_name(name):
        raise HubRefusal(f"{repo}: refused, the hub lists the unsafe file name {in_short(repr(name))}")
    if not isinstance(size, int) or not 0 <= size <= MAX_FILE_BYTES:
        raise HubRefusal(f"{repo}: refused, the hub says that {name} has {in_short(repr(size))} bytes")
    for digest, pattern in ((sha256, _SHA256), (git_sha1, _SHA1)):
        if digest is not None and not (isinstance(digest, str) and pattern.fullmatch(digest)):
            raise HubRefusal(f"{repo}: refused, the hub gives {name} the checksum {in_short(repr(digest))}")
    return HubFile(name, size, sha256, git_sha1)


def is_safe_name(name: str) -> bool:
    """Whether a path inside a repository stays inside the folder that it is put into, and can be shown."""
    parts = name.split("/")
    return (
        name.isprintable()
        and "\\" not in name
        and all(part not in ("", ".", "..") and len(part.encode()) <= _MAX_NAME_BYTES for part in parts)
        and len(parts) <= _MAX_NAME_PARTS
    )


@contextmanager
def hub_errors(repo: str, revision: str) -> Iterator[None]:
    """Turns what the hub's library raises into one sentence and a hint."""
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled:
        raise HubUnreachable(
            f"{repo}: not allowed to connect, HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE"
        ) from None
    except errors.GatedRepoError:
        raise HubRefusal(
            f"{repo} is gated: its owners must grant access to your account first",
            "ask for access on the model's page, then put a token into HF_TOKEN or run `hf auth login`",
        ) from None
    except errors.RevisionNotFoundError:
        raise HubRefusal(
            f"{repo} has no revision {revision}", "--revision takes a branch, tag or commit"
        ) from None
    except errors.RepositoryNotFoundError:
        raise HubRefusal(
            f"there is no {repo} on the hub, or it is private",
            "check the spelling; a private model needs a token in HF_TOKEN, or `hf auth login`",
        ) from None
    except errors.EntryNotFoundError:
        raise HubRefusal(f"{repo} at {revision}: a file of the listing is not there any more") from None
    except errors.HFValidationError as error:
        raise HubRefusal(f"{repo} is not a model id: {str(error).splitlines()[0]}") from None
    except errors.HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None and status < 500:
            raise HubRefusal(f"{repo}: {status_words(status)}", _status_hint(status)) from None
        raise HubUnreachable(f"{repo}: {status_words(status)}") from None
    except DeepInferError:
        raise
    except ValueError as error:  # a page in place of an answer, as portals and proxies send it
        raise HubRefusal(
            f"{repo}: the hub's answer makes no sense ({in_short(str(error))})",
            "check HF_ENDPOINT and the proxy",
        ) from None
    except Exception as error:
        name = type(error).__name__
        if name in ("TooManyRedirects", "InvalidURL", "UnsupportedProtocol"):
            raise HubRefusal(
                f"{repo}: the hub redirects to where nothing can be fetched ({name}: {in_short(str(error))})",
                "check HF_ENDPOINT and the proxy",
            ) from None
        if not isinstance(error, (OSError, _transport_error())):
            raise
        raise HubUnreachable(
            f"{repo}: the hub cannot be reached ({name}: {in_short(str(error)) or 'no details'})",
            "check the network, HF_ENDPOINT and the proxy; --offline uses only what is cached",
        ) from None


def status_words(status: int | None) -> str:
    words = {401: "the hub wants a token (401)", 403: "the hub refuses access (403)", 404: "not found (404)"}
    return words.get(status or 0, f"the hub answered with status {status}")


def _status_hint(status: int) -> str | None:
    return "put a token with access into HF_TOKEN, or run `hf auth login`" if status in (401, 403) else None


def _session() -> Any:
    from huggingface_hub import get_session

    return get_session()


def _transport_error() -> type[Exception]:
    """Base class of the HTTP client's own errors; which client it is depends on the hub library's version."""
    module = importlib.import_module(type(_session()).__module__.partition(".")[0])
    kind: type[Exception] = module.TransportError
    return kind


@contextmanager
def _get(listing: HubListing, name: str, headers: dict[str, str]) -> Iterator[Any]:
    """A streamed response with its status checked."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        hf_raise_for_status,
    )

    url = hf_hub_url(listing.repo, name, revision=listing.commit, endpoint=_endpoint())
    # Bytes as stored: a transparent compression would break offsets and checksums.
    wanted = {**build_hf_headers(), "Accept-Encoding": "identity", **headers}
    with _session().stream(
        "GET", url, headers=wanted, follow_redirects=True, timeout=STALL_SECONDS
    ) as response:
        if response.status_code != 416:
            hf_raise_for_status(response)
        yield response


def read_range(listing: HubListing, name: str) -> Callable[[int, int], bytes]:
    """ReadAt over a remote file: one range request a call."""

    def read_at(offset: int, size: int) -> bytes:
        with hub_errors(listing.repo, listing.commit):
            headers = {"Range": f"bytes={offset}-{offset + size - 1}"}
            with _get(listing, name, headers) as response:
                if response.status_code == 416:
                    return b""
                skip = 0 if response.status_code == 206 else offset
                data = bytearray()
                for piece in response.iter_bytes():
                    data += piece
                    if len(data) >= skip + size:
                        break
                return bytes(data[skip : skip + size])

    return read_at


def fetch_file(
    listing: HubListing,
    file: HubFile,
    target: Path,
    *,
    say: Callable[[str], None],
    advance: Callable[[int], None],
) -> None:
    """Brings one file under `target`, whole and checked. Wrong bytes are fetched once more, then refused."""
    if file.digest is None:
        raise HubRefusal(
            f"{listing.repo}: the hub gives no checksum for {file.name}, so it cannot be checked",
            "HF_ENDPOINT names a mirror that leaves them out; fetch from the hub itself",
        )
    partial = target.with_name(f".{target.name}.{file.key}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for attempt in (1, 2):
            with _locked(partial, say) as out:
                if target.is_file():  # another process finished it while this one waited
                    partial.unlink(missing_ok=True)
                    return
                found = _transfer(listing, file, out, say=say, advance=advance)
                out.flush()
                os.fsync(out.fileno())
                if found == file.digest:
                    publish(partial, target)
                    return
                partial.unlink(missing_ok=True)
            if attempt == 1:
                say(f"{file.name}: wrong checksum; fetching it again")
    except OSError as error:
        raise cannot_write(target, error) from error
    raise DownloadError(
        f"{listing.repo}: {file.name} arrived twice with the wrong bytes ({found}, wanted {file.digest})",
        "something between here and the hub changes files, or the hub's copy is damaged",
    )


@contextmanager
def _locked(partial: Path, say: Callable[[str], None]) -> Iterator[IO[bytes]]:
    """The partial file, open for appending and ours alone. Where locks do not work, they are done without."""
    import fcntl

    # Not through a link: in a folder that others can write to, it would lead the bytes to a file of ours.
    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NOFOLLOW, 0o644)

    with open(partial, "a+b", opener=opener) as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{partial.parent}: another download of this file is running; waiting for it")
            fcntl.flock(out, fcntl.LOCK_EX)
        except OSError:
            pass
        yield out


def _transfer(
    listing: HubListing,
    file: HubFile,
    out: IO[bytes],
    *,
    say: Callable[[str], None],
    advance: Callable[[int], None],
) -> str:
    """Appends until the file has its size; the digest of all of it. Resumes after every break."""
    hasher = file.hasher()
    out.seek(0)
    while piece := out.read(PIECE_BYTES):
        hasher.update(piece)
    done = out.tell()
    if done > file.num_bytes:
        out.truncate(0)
        hasher, done = file.hasher(), 0
    if done:
        say(f"{file.name}: resuming at {done:,} of {file.num_bytes:,} bytes")
        advance(done)
    failures = 0
    while done < file.num_bytes:
        before = done
        try:
            with hub_errors(listing.repo, listing.commit):
                for restart, data in _pieces(listing, file, done):
                    if restart:
                        out.truncate(0)
                        advance(-done)
                        hasher, done = file.hasher(), 0
                    _append(out, data)
                    hasher.update(data)
                    done += len(data)
                    advance(len(data))
        except HubUnreachable:
            if failures + 1 >= MAX_ATTEMPTS:
                out.flush()
                raise
        failures = 0 if done > before else failures + 1
        if done < file.num_bytes:
            say(f"{file.name}: the connection broke at {done:,} of {file.num_bytes:,} bytes; resuming")
            time.sleep(min(8.0, 0.25 * 2**failures))
            if failures >= MAX_ATTEMPTS:
                raise HubUnreachable(f"{listing.repo}: {file.name} does not arrive; the hub sends nothing")
    return str(hasher.hexdigest())


def _append(out: IO[bytes], data: bytes) -> None:
    """A disk that is full must not look like a network that is down."""
    try:
        out.write(data)
        out.flush()
    except OSError as error:
        raise cannot_write(Path(out.name), error) from error


def _pieces(listing: HubListing, file: HubFile, offset: int) -> Iterator[tuple[bool, bytes]]:
    """(start over?, bytes) from `offset` on. A server that ignores the range makes the file start over."""
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    with _get(listing, file.name, headers) as response:
        restart = False
        if offset:
            given = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
            restart = response.status_code != 206 or given is None or int(given[1]) != offset
        left = file.num_bytes - (0 if restart else offset)
        for piece in response.iter_bytes():  # as they come: nothing is lost when the line breaks
            if len(piece) > left:
                piece = piece[:left]  # a longer answer fails its checksum, and fills no disk
            if not piece:
                return
            left -= len(piece)
            yield restart, piece
            restart = False
