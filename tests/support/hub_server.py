"""A model hub of our own on 127.0.0.1, and everything that can go wrong with one."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_DRIPS = 40  # pieces of a slow transfer
_pause = time.sleep  # tests replace time.sleep where the product calls it
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """One repository's files and the faults to show. Change the fields between requests."""

    files: dict[str, bytes] = field(default_factory=dict)
    repo: str = "org/model"
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    status: int = 0  # answer everything with it
    gated: bool = False
    token: str | None = None  # wanted in Authorization
    drops: int = 0  # so many transfers still break off
    drop_share: float = 0.6
    wrong_bytes: int = 0  # so many transfers still carry other bytes of the right length
    ignores_ranges: bool = False
    redirects: bool = False
    unlisted: tuple[str, ...] = ()  # in the listing, but 404
    drip_seconds: float = 0.0  # between pieces of a transfer
    stalls: int = 0  # so many transfers still send a part and then nothing
    answer: bytes | None = None  # the answer to everything, such as a portal's page
    listing: dict[str, object] | None = None  # in place of the true one
    elsewhere: str = ""  # files are redirected to this place
    loops: bool = False  # files are redirected to themselves
    later: bytes | None = None  # bytes of all files once a transfer broke off
    released: threading.Event = field(default_factory=threading.Event)  # ends the stalls
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # (method, path, range)
    tokens: list[str | None] = field(default_factory=list)  # Authorization of each request
    url: str = ""

    def num_bytes_asked(self) -> list[str]:
        return [given for method, path, given in self.requests if method == "GET" and "/resolve/" in path]

    def info(self) -> dict[str, object]:
        siblings = []
        for name, data in self.files.items():
            entry: dict[str, object] = {"rfilename": name, "size": len(data)}
            if name.endswith((".safetensors", ".gguf")):
                entry["lfs"] = {
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "size": len(data),
                    "pointerSize": 130,
                }
            entry["blobId"] = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
            siblings.append(entry)
        return {"id": self.repo, "modelId": self.repo, "sha": self.commit, "siblings": siblings}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        hub = self.hub
        path = self.path.partition("?")[0]
        hub.requests.append((self.command, path, self.headers.get("Range", "")))
        hub.tokens.append(self.headers.get("Authorization"))
        if hub.answer is not None:
            return self._send(200, hub.answer, {"Content-Type": "text/html"})
        if hub.status:
            return self._refuse(hub.status, "")
        if hub.gated:
            return self._refuse(403, "GatedRepo")
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._refuse(401, "RepoNotFound")
        api = f"/api/models/{hub.repo}/revision/"
        if path.startswith(api):
            if path.removeprefix(api) not in (*hub.revisions, hub.commit):
                return self._refuse(404, "RevisionNotFound")
            listing = hub.info() if hub.listing is None else hub.listing
            return self._send(200, json.dumps(listing).encode(), {"Content-Type": "application/json"})
        for prefix in (f"/{hub.repo}/resolve/{hub.commit}/", "/cdn/"):
            if path.startswith(prefix):
                name = path.removeprefix(prefix)
                if name not in hub.files or name in hub.unlisted:
                    return self._refuse(404, "EntryNotFound")
                if hub.loops:
                    return self._send(302, b"", {"Location": hub.url + path})
                if hub.elsewhere:
                    return self._send(302, b"", {"Location": f"{hub.elsewhere}/cdn/{name}"})
                if hub.redirects and prefix != "/cdn/":
                    return self._send(302, b"", {"Location": f"{hub.url}/cdn/{name}"})
                return self._file(hub.files[name], with_body)
        return self._refuse(404, "RepoNotFound")

    def _file(self, data: bytes, with_body: bool) -> None:
        hub = self.hub
        status, headers = 200, {"X-Repo-Commit": hub.commit, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        headers["X-Linked-Size"] = str(len(data))
        body = data
        wanted = self.headers.get("Range", "")
        if wanted.startswith("bytes=") and not hub.ignores_ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or len(data)), len(data) - 1)
            if begin >= len(data):
                return self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            status, body = 206, data[begin : end + 1]
            headers["Content-Range"] = f"bytes {begin}-{end}/{len(data)}"
        if with_body and hub.wrong_bytes:
            hub.wrong_bytes -= 1
            body = bytes(byte ^ 0x55 for byte in body)
        if with_body and hub.drops:
            hub.drops -= 1
            if hub.later is not None:
                hub.files = dict.fromkeys(hub.files, hub.later)
            return self._send(status, body, headers, sent=int(len(body) * hub.drop_share))
        if with_body and hub.stalls:
            hub.stalls -= 1
            self._send(status, body, headers, sent=len(body) // 2)
            hub.released.wait(60)
            return None
        return self._send(status, body if with_body else b"", headers, length=len(body))

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code} if code else {})

    def _send(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str],
        *,
        sent: int | None = None,
        length: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        given = body if sent is None else body[:sent]
        step = len(given) // _DRIPS + 1 if self.hub.drip_seconds else max(1, len(given))
        for begin in range(0, len(given), step):
            self.wfile.write(given[begin : begin + step])
            self.wfile.flush()
            _pause(self.hub.drip_seconds)
        if sent is not None:
            self.close_connection = True


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
