"""Any OpenAI-compatible server under a job: /v1/completions with token ids, so many requests at a time."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse
from collections.abc import Sequence
from typing import Any, Final

from deepinfer_cli.bench.peers.job import Job, JobCost
from deepinfer_cli.errors import EngineError, UsageError

TIMEOUT_S: Final = 600.0  # of one request
_MAX_ANSWER_BYTES: Final = 64 << 20


class Endpoint:
    def __init__(self, url: str, model: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url} is no address of a server", "--against http://127.0.0.1:8080/v1")
        self._parts = parts
        self._path = parts.path.rstrip("/") or "/v1"
        self._model = model or self._first_model()

    def describe(self) -> str:
        return f"{self._parts.scheme}://{self._parts.netloc}{self._path}, model {self._model}"

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(str(self._parts.hostname), self._parts.port, timeout=TIMEOUT_S)

    def _ask(self, connection: http.client.HTTPConnection, path: str, body: Any = None) -> dict[str, Any]:
        """The JSON object that the server answers."""
        try:
            data = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            connection.request("GET" if data is None else "POST", self._path + path, data, headers)
            response = connection.getresponse()
            text = response.read(_MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"{self._parts.netloc}: {error or type(error).__name__}") from None
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if response.status != 200 or not isinstance(answer, dict):
            shown = text[:200].decode("utf-8", "replace")
            raise EngineError(f"{self._parts.netloc}{self._path}{path} answered {response.status}: {shown}")
        return answer

    def _first_model(self) -> str:
        answer = self._ask(self._connect(), "/models")
        models = answer.get("data")
        if not isinstance(models, list) or not models or not isinstance(models[0], dict):
            raise EngineError(f"{self._parts.netloc} names no model", "--peer-model NAME")
        return str(models[0].get("id"))

    def run(self, job: Job) -> JobCost:
        counts = [0] * len(job.prompts)
        failures: list[EngineError] = []
        ordinals = iter(range(len(job.prompts)))
        lock = threading.Lock()

        def work() -> None:
            connection = self._connect()
            while True:
                with lock:
                    i = next(ordinals, None)
                if i is None or failures:
                    return
                try:
                    counts[i] = self._complete(connection, job.prompts[i], job.max_tokens)
                except EngineError as error:
                    failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(min(job.concurrency, len(job.prompts)))]
        wall = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return JobCost(time.perf_counter() - wall, None, counts)

    def _complete(
        self, connection: http.client.HTTPConnection, prompt: Sequence[int], max_tokens: int
    ) -> int:
        answer = self._ask(
            connection,
            "/completions",
            {
                "model": self._model,
                "prompt": list(prompt),
                "max_tokens": max_tokens,
                "temperature": 0,
                "ignore_eos": True,  # known to the servers that people measure; others end when they end
                "stream": False,
            },
        )
        usage = answer.get("usage")
        count = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if not isinstance(count, int):
            raise EngineError(f"{self._parts.netloc} does not say how many tokens it made")
        return count
