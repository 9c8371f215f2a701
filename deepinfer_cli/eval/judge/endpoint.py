"""A judge behind an OpenAI-compatible endpoint. A judgement that fails costs that sample's verdict alone."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from deepinfer_cli.errors import UsageError
from deepinfer_cli.eval.judge.prompt import Judgement, judge_messages, read_judgement

KEY_VARIABLE: Final = "DEEPINFER_JUDGE_API_KEY"
NUM_PARALLEL: Final = 8
MAX_ATTEMPTS: Final = 3
MAX_TOKENS: Final = 4096
_MAX_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class EndpointJudge:
    batch_size: ClassVar[int] = 64

    url: str  # base, such as http://localhost:8000/v1
    model: str
    timeout_s: float

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise UsageError(
                f"--judge takes a URL or `local`, got {self.url!r}", "--judge http://localhost:8000/v1"
            )

    def describe(self) -> dict[str, Any]:
        """For eval.json: no key, and no user or password that the URL may hold."""
        parts = urlsplit(self.url)
        host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
        return {"url": f"{parts.scheme}://{host}{parts.path}", "model": self.model, "self_judged": False}

    def judge(self, samples: Sequence[Mapping[str, Any]]) -> list[Judgement]:
        with ThreadPoolExecutor(NUM_PARALLEL) as pool:
            return list(pool.map(self._one, samples))

    def _one(self, sample: Mapping[str, Any]) -> Judgement:
        judgement = Judgement(self.model, error="never asked")
        for _ in range(MAX_ATTEMPTS):
            try:
                text = self._ask(judge_messages(sample))
            except _Refused as refusal:
                return Judgement(self.model, error=str(refusal))
            except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
                judgement = Judgement(self.model, error=_words(error, self.timeout_s))
                continue
            judgement = read_judgement(text, self.model)
            if judgement.error is None:
                break
        return judgement

    def _ask(self, messages: list[dict[str, str]]) -> str:
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": MAX_TOKENS}
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                answer = json.loads(response.read(_MAX_BYTES))
        except urllib.error.HTTPError as error:
            if error.code in (408, 409, 425, 429) or error.code >= 500:
                raise
            raise _Refused(f"the judge answered with status {error.code}") from None
        content = answer["choices"][0]["message"]["content"]
        if not isinstance(content, str):
            raise ValueError("no text in the answer")
        return content


class _Refused(Exception):
    """Asking again would not help."""


def _words(error: Exception, timeout_s: float) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the judge answered with status {error.code}"
    reason = getattr(error, "reason", error)
    if isinstance(error, TimeoutError) or isinstance(reason, TimeoutError):
        return f"the judge did not answer within {timeout_s:g} s"
    if isinstance(error, OSError):
        return f"the judge cannot be reached: {reason}"
    return f"the judge's answer has not the form of a chat completion ({type(error).__name__})"
