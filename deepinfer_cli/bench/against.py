"""Peers in the same run: after or before each repetition of ours, the same prompts go to another engine.

The peer has a process of its own (bench/peers/live.py). Who goes first changes from repetition to repetition,
so each pair is measured in one minute of the machine's life, and the ratio is taken pair by pair.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from deepinfer_cli.bench.measure import LENGTH_TOLERANCE, Ask
from deepinfer_cli.bench.peers.job import Job, JobCost
from deepinfer_cli.errors import EngineError, UsageError

KNOWN: Final = ("llama.cpp", "openvino")
_GOODBYE_S: Final = 10.0


class PeerFailed(Exception):
    """The peer could not do its job; the argument is the reason, for the table."""


def check_peer(peer: str) -> None:
    if peer not in KNOWN and not peer.startswith(("http://", "https://")):
        raise UsageError(
            f"--against knows {', '.join(KNOWN)} and addresses of servers, not {peer!r}",
            "--against http://127.0.0.1:8080/v1",
        )


class LivePeer:
    """Starts the peer's process and waits until its model is loaded; EngineError when it cannot."""

    def __init__(
        self,
        peer: str,
        model: str,
        num_threads: int,
        *more: str,
        python: str = sys.executable,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """more: mode and settings, as bench/peers/live.py takes them. python: of the peer's environment, with
        what it needs besides ours in `environ`."""
        self.name = peer
        command = [python, "-m", "deepinfer_cli.bench.peers.live", peer, model, str(num_threads), *more]
        # A pool that spins while it waits would burn our repetition's share of the machine.
        passive = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(num_threads)}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **passive, **(environ or {})},
            start_new_session=True,  # Ctrl-C is for us; the peer ends when we close its input
        )
        try:
            self.description = str(self._read()["description"])
        except PeerFailed as error:
            self.close()
            raise EngineError(f"--against {peer}: {error}", self._hint, exit_code=2) from None

    _hint: str | None = None

    def __enter__(self) -> LivePeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the process: gently, then not."""
        try:
            self._process.communicate(timeout=_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailed(f"its process ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            self._hint = answer.get("hint")
            raise PeerFailed(str(answer["error"]))
        return answer

    def ask(self, work: Any) -> dict[str, Any]:
        """The whole answer to a piece of work."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(work) + "\n").encode())
            self._process.stdin.flush()
        except OSError:
            raise PeerFailed(f"its process ended with code {self._process.wait()}") from None
        return self._read()

    def run(self, job: Job) -> JobCost:
        return JobCost(**self.ask(asdict(job))["cost"])

    def measure(self, asks: Sequence[Ask], warmup: Sequence[Ask], concurrency: int) -> dict[str, Any]:
        """The peer's numbers for the same requests, as a part of our repetition's values."""
        if warmup:
            self.run(_job(warmup, concurrency))
        job = _job(asks, concurrency)
        cost = self.run(job)
        made = sum(cost.num_output)
        wanted = job.max_tokens * len(job.prompts)
        if abs(made - wanted) > LENGTH_TOLERANCE * wanted:
            raise PeerFailed(f"it made {made:,} tokens, not the {wanted:,} asked for")
        total = made + sum(len(prompt) for prompt in job.prompts)
        cpu = cost.cpu_seconds
        return {
            "output_tokens_per_s": made / cost.wall_seconds,
            "total_tokens_per_cpu_s": total / cpu if cpu else None,
            "seconds": cost.wall_seconds,
            "cpu_seconds": cpu,
        }


def _job(asks: Sequence[Ask], concurrency: int) -> Job:
    """Requests of equal length, as the cells have them."""
    return Job([list(ask.token_ids) for ask in asks], asks[0].params.max_tokens or 1, concurrency)


def peer_model(peer: str, named: str | None, our_file: Path | None) -> str:
    """What the peer's process is told to load: a file, a folder, or a server's name of the model."""
    if peer == "llama.cpp":
        found = named or (str(our_file) if our_file is not None else None)
        if found is None or not Path(found).is_file():
            raise UsageError("llama.cpp needs a GGUF file", "-m MODEL.gguf, or --peer-model FILE")
        return found
    if peer == "openvino":
        if named is None and our_file is None:
            raise UsageError("openvino needs a model", "-m MODEL.gguf, or --peer-model DIR")
        return named or str(our_file)
    return named or ""
