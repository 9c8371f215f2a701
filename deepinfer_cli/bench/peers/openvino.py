"""OpenVINO GenAI as a peer: its continuous batching pipeline on a GGUF file or a converted folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from deepinfer_cli.bench.peers.job import Job, JobCost
from deepinfer_cli.bench.workloads import Cost, Stopwatch, Workload, token_at
from deepinfer_cli.errors import ModelError, UsageError

_BATCH = 512  # tokens of one step


class _OpenVino:
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

    def _open(self, width: int, *, prefix_cache: bool) -> Any:
        """A pipeline that runs `width` requests at once; loading is costly, so the last one is kept."""
        if self._pipeline is None or self._width != width:
            scheduler = self._genai.SchedulerConfig()
            scheduler.cache_size = 0  # as much as it needs
            scheduler.max_num_seqs = width
            scheduler.max_num_batched_tokens = max(_BATCH, width)
            scheduler.enable_prefix_caching = prefix_cache
            properties = {"INFERENCE_NUM_THREADS": self._num_threads, "PERFORMANCE_HINT": "LATENCY"}
            self._pipeline = self._genai.ContinuousBatchingPipeline(
                str(self._model), scheduler, "CPU", properties
            )
            self._width = width
        return self._pipeline

    def _config(self, max_tokens: int, stop_token_ids: Sequence[int] = ()) -> Any:
        """Greedy, and exactly `max_tokens` long where nothing may stop it."""
        config = self._genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.do_sample = False
        config.apply_chat_template = False
        if stop_token_ids:
            config.stop_token_ids = set(stop_token_ids)
            config.eos_token_id = next(iter(stop_token_ids))
        else:
            config.ignore_eos = True
            config.min_new_tokens = max_tokens
        return config

    def _tensor(self, prompt: Sequence[int]) -> Any:
        """[1, tokens] int64."""
        tensor = self._openvino.Tensor(self._openvino.Type.i64, self._openvino.Shape([1, len(prompt)]))
        tensor.data[:] = [list(prompt)]
        return tensor


class OpenVinoBatch(_OpenVino):
    def run(self, job: Job) -> JobCost:
        pipeline = self._open(job.concurrency, prefix_cache=False)
        config = self._config(job.max_tokens, job.stop_token_ids)
        prompts = [self._tensor(prompt) for prompt in job.prompts]
        wall, cpu = time.perf_counter(), time.process_time()
        results = pipeline.generate(prompts, [config] * len(prompts))
        cost = time.perf_counter() - wall, time.process_time() - cpu
        return JobCost(*cost, [len(result.m_generation_ids[0]) for result in results])


class OpenVinoSpeed(_OpenVino):
    def __init__(self, model: Path, num_threads: int) -> None:
        super().__init__(model, num_threads)
        self._num_requests = 0

    def run(self, workload: Workload) -> Cost:
        pipeline = self._open(workload.batch, prefix_cache=not workload.is_prefill)
        if workload.is_prefill:
            prompt = self._tensor([token_at(0, p) for p in range(workload.num_tokens)])
            config = self._config(1)
            watch = Stopwatch()
            pipeline.generate([prompt], [config])
            return watch.cost()
        # The context comes from the prefix cache after the first time; the clock runs while every sequence
        # makes one token a step.
        config = self._config(workload.num_tokens + workload.batch)
        handles = []
        for sequence in range(workload.batch):
            context = [token_at(sequence, p) for p in range(workload.context + 1)]
            handles.append(pipeline.add_request(self._num_requests, self._tensor(context), config))
            self._num_requests += 1
        made = [0] * workload.batch
        while min(made) == 0:
            pipeline.step()
            made = [a + b for a, b in zip(made, map(_num_new, handles), strict=True)]
        watch = Stopwatch()
        for _ in range(workload.num_tokens):
            pipeline.step()
        cost = watch.cost()
        num_made = sum(map(_num_new, handles))
        if num_made != workload.total_tokens:
            raise ModelError(f"OpenVINO made {num_made} tokens, not {workload.total_tokens}")
        for handle in handles:
            handle.cancel()
        while pipeline.has_non_finished_requests():
            pipeline.step()
        return cost


def _num_new(handle: Any) -> int:
    """Tokens of a request that were not looked at yet."""
    count = 0
    while handle.can_read():
        count += sum(len(output.generated_ids) for output in handle.read().values())
    return count
