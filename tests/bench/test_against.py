"""Peers beside our own engine: the protocol, a server of our own making, and peers that fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.bench.pairs import pair_ratios
from deepinfer_cli.bench.peers.endpoint import Endpoint
from deepinfer_cli.bench.peers.job import Job
from deepinfer_cli.bench.peers.llama_cpp import LlamaCpp
from deepinfer_cli.bench.peers.llama_cpp_batch import LlamaCppBatch, _Flight
from deepinfer_cli.errors import EngineError, UsageError
from tests.support.runs import Finished, deepinfer
from tests.support.tiny_models import TinyLlama, cached

LOAD = (
    "--model",
    "fake",
    "--concurrency",
    "3",
    "--num-prompts",
    "6",
    "--input-len",
    "20",
    "--output-len",
    "4",
)


class Server:
    """Answers /v1/models and /v1/completions; `fail_after` requests it says 500, `make` tokens too few."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []
        self.fail_after: int | None = None
        self.missing_tokens = 0
        self.num_open = self.most_open = 0
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def answer(self, status: int, value: Any) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                self.answer(200, {"data": [{"id": "the-model"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert body["model"] == "the-model" and body["temperature"] == 0 and body["ignore_eos"]
                with lock:
                    outer.prompts.append(body["prompt"])
                    outer.num_open += 1
                    outer.most_open = max(outer.most_open, outer.num_open)
                    failed = outer.fail_after is not None and len(outer.prompts) > outer.fail_after
                with lock:
                    outer.num_open -= 1
                if failed:
                    return self.answer(500, {"error": "out of order"})
                count = body["max_tokens"] - outer.missing_tokens
                return self.answer(200, {"usage": {"completion_tokens": count}})

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def cell_of(done: Finished) -> dict[str, Any]:
    (cell,) = json.loads(done.stdout)["cells"]
    found: dict[str, Any] = cell
    return found


def test_a_server_is_measured_pair_by_pair_on_the_same_prompts(server: Server) -> None:
    done = deepinfer("bench", *LOAD, "--repetitions", "4", "--format", "json", "--against", server.url)
    assert done.code == 0, done.stderr
    cell = cell_of(done)
    assert cell["against"]["wall"]["num_pairs"] == 4 and cell["against"]["error"] is None
    assert cell["against"]["cpu"] is None  # a server's CPU time is its own affair
    assert cell["against"]["wall"]["low"] <= cell["against"]["wall"]["value"]
    assert cell["values"]["peer"]["output_tokens_per_s"] > 0
    assert len(server.prompts) == 4 * (6 + 1)  # one warm-up request each
    assert len({tuple(p) for p in server.prompts}) == len(server.prompts)
    assert {len(p) for p in server.prompts} == {20}
    assert json.loads(done.stdout)["header"]["against"].endswith("model the-model")


def test_two_runs_against_a_server_share_no_prompt(server: Server) -> None:
    for _ in range(2):
        assert deepinfer("bench", *LOAD, "--repetitions", "1", "--against", server.url).code == 0
    assert len({tuple(p[:16]) for p in server.prompts}) == len(server.prompts)


def test_a_server_that_breaks_leaves_our_own_numbers(server: Server) -> None:
    server.fail_after = 8
    done = deepinfer("bench", *LOAD, "--repetitions", "3", "--format", "json", "--against", server.url)
    assert done.code == 0, done.stderr
    cell = cell_of(done)
    assert cell["status"] == "ok" and len(cell["repetitions"]) == 3
    assert cell["against"]["num_failed"] == 2 and "answered 500" in cell["against"]["error"]
    assert cell["against"]["wall"] is None  # one pair has no interval


def test_a_server_that_stops_early_is_no_peer(server: Server) -> None:
    server.missing_tokens = 1
    done = deepinfer("bench", *LOAD, "--repetitions", "1", "--format", "md", "--against", server.url)
    assert done.code == 0 and b"it made 18 tokens, not the 24 asked for" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--against", "ollama"), "--against knows llama.cpp, openvino and addresses of servers"),
        (("--against", "http://127.0.0.1:9/v1"), "Connection refused"),
        (("--against", "llama.cpp"), "llama.cpp needs a GGUF file"),
        (("--against", "openvino"), "openvino needs a model"),
        (("--against", "openvino", "--peer-model", "/nowhere"), "--against openvino: "),
        (("--against", "llama.cpp", "--peer-model", "{file}"), "no such file"),
    ],
)
def test_missing_peers_are_said_before_anything_runs(
    args: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    done = deepinfer(
        "bench",
        *LOAD,
        *(a.replace("{file}", str(file)) for a in args),
        env={"DEEPINFER_LLAMA_CPP": "/nowhere/libllama.so"},
    )
    assert done.code == 2 and done.stdout == b"" and says in done.stderr


def test_ratios_are_ours_over_theirs() -> None:
    def pair(ours: float, theirs: float | None) -> dict[str, Any]:
        peer: dict[str, Any] = {"error": "gone"} if theirs is None else {"output_tokens_per_s": theirs}
        return {"throughput": {"output_tokens_per_s": ours, "total_tokens_per_cpu_s": 1.0}, "peer": peer}

    ratios = pair_ratios([pair(10, 5), pair(30, 10), pair(8, 2), pair(7, None)])
    assert ratios["wall"] is not None and ratios["cpu"] is None
    assert ratios["wall"].value == pytest.approx((2 * 3 * 4) ** (1 / 3)) and ratios["wall"].num_pairs == 3


def test_an_endpoint_keeps_so_many_requests_in_flight(server: Server) -> None:
    endpoint = Endpoint(server.url, None)
    cost = endpoint.run(Job([[1, 2]] * 9, 5, 3))
    assert list(cost.num_output) == [5] * 9 and cost.cpu_seconds is None
    assert server.most_open <= 3
    server.fail_after = 0
    with pytest.raises(EngineError, match="answered 500"):
        endpoint.run(Job([[1, 2]] * 4, 5, 2))
    with pytest.raises(UsageError):
        Endpoint("ftp://x", None)


# ---- llama.cpp's loop --------------------------------------------------------------------------------------


class Recorder:
    """Stands in for LlamaCpp: checks what every batch may hold."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}  # tokens in each sequence's cache
        self.rows: list[tuple[int, int, int, bool]] = []
        self.batch_sizes: list[int] = []

    def decode(self, rows: list[tuple[int, int, int, bool]]) -> None:
        for _, position, sequence, _ in rows:
            assert position == self.lengths.get(sequence, 0)
            self.lengths[sequence] = position + 1
        self.rows = rows
        self.batch_sizes.append(len(rows))

    def sample_greedy(self, row: int) -> int:
        assert self.rows[row][3]
        return 1000 + row

    def forget_sequence(self, sequence: int) -> None:
        del self.lengths[sequence]


def test_the_loop_keeps_positions_and_fills_batches() -> None:
    engine = Recorder()
    prompts = [[7] * n for n in (600, 3, 1, 40, 5)]
    counts = _Flight(engine, Job(prompts, 6, 2), 2).run()  # type: ignore[arg-type]
    assert counts == [6] * 5 and not engine.lengths
    assert max(engine.batch_sizes) <= 512
    assert sum(engine.batch_sizes) == sum(map(len, prompts)) + 5 * 5


@pytest.mark.oracle
def test_the_loop_generates_what_llama_cpp_generates_alone(tiny_root: Path) -> None:
    path = cached(TinyLlama(), tiny_root, "gguf", "F32")
    job = Job([[5, 6, 7, 8], [9] * 30, [11, 3]], 6, 2)
    batch = LlamaCppBatch(path, 1)
    cost = batch.run(job)
    assert list(cost.num_output) == [6] * 3 and cost.cpu_seconds is not None
    assert "libllama" in batch.describe() or "xllamacpp" in batch.describe()
    alone = LlamaCpp(path, num_ctx=256)
    seen: list[list[int]] = []
    flight = _Flight(LlamaCpp(path, num_ctx=256, num_seqs=2), job, 2)
    take = flight._take

    def record(i: int, token: int) -> None:
        slot = flight._slots[i]
        assert slot is not None
        take(i, token)
        if len(slot.made) == job.max_tokens:
            seen.append(slot.made)

    flight._take = record  # type: ignore[method-assign]
    flight.run()
    assert sorted(seen) == sorted(alone.greedy(prompt, 6) for prompt in job.prompts)
