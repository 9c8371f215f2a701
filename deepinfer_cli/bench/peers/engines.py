"""The engines of a comparison, each with its interpreter, model and way of starting."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deepinfer_cli.bench.against import LivePeer
from deepinfer_cli.bench.peers.llama_cpp import LIBRARY_VARIABLE

PEERS: Final = ("llama.cpp-q4_0", "llama.cpp-q4_1", "openvino-int8")


@dataclass(frozen=True, slots=True)
class Engine:
    name: str  # of its column, "deepinfer-fast"
    kind: str  # "deepinfer", "llama.cpp" or "openvino"
    model: Path
    python: Path = Path(sys.executable)
    settings: tuple[str, ...] = ()  # ours: NAME=VALUE
    tools: Path | None = None  # llama.cpp: folder of its programs

    @property
    def is_ours(self) -> bool:
        return self.kind == "deepinfer"

    def start(self, num_threads: int, mode: str, *, prefix_cache: bool = True) -> LivePeer:
        """mode: "jobs" or "steps". prefix_cache is for ours; the others see to it themselves."""
        without = () if prefix_cache or not self.is_ours else ("prefix_cache=false",)
        return LivePeer(
            self.kind,
            str(self.model),
            num_threads,
            mode,
            *self.settings,
            *without,
            python=str(self.python),
            environ=self.environ,
        )

    @property
    def environ(self) -> dict[str, str]:
        """What its processes find in their environment besides ours."""
        if self.tools is not None:
            return {LIBRARY_VARIABLE: str(self.tools / "libllama.so")}
        return {"PYTHONPATH": str(Path(__file__).parents[3])}  # its environment is without this package

    def first_token_command(self, num_threads: int, prompt: str, rows: Path) -> list[str]:
        """A process that answers `prompt` with one token; `rows` holds it as a row, and as a job."""
        if self.is_ours:
            command = [str(self.python), "-m", "deepinfer_cli", "run", str(rows), "-o", "-", "--quiet"]
            command += ["--model", str(self.model), "--threads", str(num_threads)]
            command += ["--max-tokens", "1", "--temperature", "0"]
            return command + [part for setting in self.settings for part in ("--set", setting)]
        if self.kind == "llama.cpp":
            assert self.tools is not None
            command = [str(self.tools / "llama-completion"), "-m", str(self.model), "-t", str(num_threads)]
            command += ["-p", prompt, "-n", "1", "--temp", "0", "-no-cnv", "--no-display-prompt"]
            return [*command, "--no-warmup"]
        live = "deepinfer_cli.bench.peers.live"
        return [str(self.python), "-m", live, self.kind, str(self.model), str(num_threads), "jobs"]
