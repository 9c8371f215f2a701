"""A server that plays the hub for data sets: listings by revision, files by commit, gates and faults."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FakeHub:
    """What the server serves. `revisions` maps branch, tag or commit to a commit; `files` commit to files."""

    repo: str
    revisions: dict[str, str]
    files: dict[str, dict[str, bytes]]
    status: int | None = None  # answer everything with this
    error_code: str | None = None  # value of X-Error-Code beside it
    missing: set[str] = field(default_factory=set)  # listed, but not there
    requests: list[str] = field(default_factory=list)
    url: str = ""


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def do_GET(self) -> None:
            self.answer(with_body=True)

        def send(self, status: int, body: bytes, *, with_body: bool = True, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def answer(self, *, with_body: bool) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            if hub.status is not None:
                extra = {"X_Error_Code": hub.error_code} if hub.error_code else {}
                self.send(hub.status, b'{"error": "no"}', with_body=with_body, **extra)
                return
            listing = f"/api/datasets/{hub.repo}/revision/"
            resolve = f"/datasets/{hub.repo}/resolve/"
            path = self.path.partition("?")[0]
            if path.startswith(listing):
                self.list_files(path.removeprefix(listing), with_body=with_body)
            elif path.startswith(resolve):
                commit, _, name = path.removeprefix(resolve).partition("/")
                self.send_file(commit, name, with_body=with_body)
            else:
                self.send(404, b"{}", with_body=with_body, X_Error_Code="RepoNotFound")

        def list_files(self, revision: str, *, with_body: bool) -> None:
            commit = hub.revisions.get(revision)
            if commit is None:
                self.send(404, b"{}", with_body=with_body, X_Error_Code="RevisionNotFound")
                return
            names = [{"rfilename": name} for name in hub.files[commit]]
            body = json.dumps({"id": hub.repo, "sha": commit, "siblings": names}).encode()
            self.send(200, body, with_body=with_body, Content_Type="application/json")

        def send_file(self, commit: str, name: str, *, with_body: bool) -> None:
            data = hub.files.get(commit, {}).get(name)
            if data is None or name in hub.missing:
                self.send(404, b"{}", with_body=with_body, X_Error_Code="EntryNotFound")
                return
            etag = f'"{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"'
            self.send(200, data, with_body=with_body, ETag=etag, X_Repo_Commit=commit)

    return Handler


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
