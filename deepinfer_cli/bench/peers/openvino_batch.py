"""OpenVINO GenAI under a job: its continuous batching pipeline on a GGUF file or a converted folder."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Any

from deepinfer_cli.bench.peers.job import Job, JobCost
from deepinfer_cli.errors import ModelError, UsageError

_BATCH = 512  # tokens of one step
_CACHE_GB = 2


class OpenVinoBatch:
    def __init__(self, model: Path, num_threads: int) -> None:
        try:
            self._genai: Any = import_module("openvino_genai")
            self._openvino: Any = import_module("openvino")
        except ImportError:
            raise UsageError("OpenVINO GenAI is not installed", "pip install openvino-genai") from None
        if model.suffix != ".gguf" and not (model / "openvino_model.xml").is_file():
            raise ModelError(
                f"{model} is neither a GGUF file nor an OpenVINO model folder",
                "--peer-model DIR, made with optimum-cli export openvino",
            )
        self._model, self._num_threads = model, num_threads
        self._pipeline: Any = None
        self._width = 0

    def describe(self) -> str:
        return f"openvino_genai {self._genai.__version__}, {self._model.name}"

    def _open(self, width: int) -> Any:
        """A pipeline that runs `width` requests at once; loading is costly, so the last one is kept."""
        if self._pipeline is None or self._width != width:
            scheduler = self._genai.SchedulerConfig()
            scheduler.cache_size = _CACHE_GB
            scheduler.max_num_seqs = width
            scheduler.max_num_batched_tokens = max(_BATCH, width)
            scheduler.enable_prefix_caching = False
            properties = {"INFERENCE_NUM_THREADS": self._num_threads, "PERFORMANCE_HINT": "LATENCY"}
            self._pipeline = self._genai.ContinuousBatchingPipeline(
                str(self._model), scheduler, "CPU", properties
            )
            self._width = width
        return self._pipeline

    def run(self, job: Job) -> JobCost:
        pipeline = self._open(job.concurrency)
        config = self._genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = job.max_tokens
        config.ignore_eos = True
        config.do_sample = False
        config.apply_chat_template = False
        prompts = [self._tensor(prompt) for prompt in job.prompts]
        wall, cpu = time.perf_counter(), time.process_time()
        results = pipeline.generate(prompts, [config] * len(prompts))
        cost = time.perf_counter() - wall, time.process_time() - cpu
        return JobCost(*cost, [len(result.m_generation_ids[0]) for result in results])

    def _tensor(self, prompt: Any) -> Any:
        """[1, tokens] int64."""
        tensor = self._openvino.Tensor(self._openvino.Type.i64, self._openvino.Shape([1, len(prompt)]))
        tensor.data[:] = [list(prompt)]
        return tensor
