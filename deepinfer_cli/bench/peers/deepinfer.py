"""This project's engine as one of several: through its public surface, sampling and text included."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from deepinfer_cli.bench.peers.job import Job, JobCost
from deepinfer_cli.bench.workloads import Cost, Stopwatch, Workload, token_at
from deepinfer_cli.config.layers import FlagUse, resolve
from deepinfer_cli.console import Console, Talk
from deepinfer_cli.engine.batch_run import load_model
from deepinfer_cli.engine.native import NativeEngine
from deepinfer_cli.errors import EngineError
from deepinfer_cli.requests.types import SamplingValues

_MAX_CONTEXT = 1024


class _DeepInfer:
    def __init__(self, model: Path, num_threads: int, settings: Sequence[str]) -> None:
        uses = [FlagUse("model", "--model", str(model)), FlagUse("threads", "--threads", str(num_threads))]
        config = resolve([*uses, *(FlagUse("set", "--set", setting) for setting in settings)]).config
        self._engine = NativeEngine(
            load_model(config, Console(Talk(quiet=True))),
            config.engine,
            max_context=_MAX_CONTEXT,
            max_tokens_cap=_MAX_CONTEXT,
        )
        self._precision = config.engine.precision
        self._num_requests = 0

    def describe(self) -> str:
        return f"precision {self._precision}, {self._engine.executor_info}"

    def _complete(self, prompts: Sequence[Sequence[int]], params: SamplingValues) -> list[int]:
        """Greedy continuations; how many tokens were made for each, the one that ended it included."""
        first = self._num_requests
        counts = [0] * len(prompts)
        num_submitted = num_done = 0
        while num_done < len(prompts):
            while num_submitted < len(prompts):
                request = self._engine.request(first + num_submitted, prompts[num_submitted], params, seed=0)
                if not self._engine.try_submit(request):
                    break
                num_submitted += 1
            for done in self._engine.poll(len(prompts), 60.0):
                if done.error:
                    raise EngineError(done.error)
                sample = done.samples[0]
                counts[done.id - first] = len(sample.tokens) + (sample.finish_reason == "stop")
                num_done += 1
        self._num_requests += len(prompts)
        return counts


class DeepInferBatch(_DeepInfer):
    def __init__(self, model: Path, num_threads: int, settings: Sequence[str]) -> None:
        # A job is run several times; its prompts must be new each time.
        super().__init__(model, num_threads, ["prefix_cache=false", *settings])

    def run(self, job: Job) -> JobCost:
        params = SamplingValues(
            temperature=0.0,
            max_tokens=job.max_tokens,
            stop_token_ids=tuple(job.stop_token_ids),
            ignore_eos=True,  # ends are those of the job
        )
        wall, cpu = time.perf_counter(), time.process_time()
        counts = self._complete(job.prompts, params)
        return JobCost(time.perf_counter() - wall, time.process_time() - cpu, counts)


class DeepInferSpeed(_DeepInfer):
    def run(self, workload: Workload) -> Cost:
        def params(num_tokens: int) -> SamplingValues:
            return SamplingValues(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)

        if workload.is_prefill:
            # A prompt never seen before, so that nothing comes from the prefix cache; one token follows it.
            seed = (self._num_requests + 1) * 37
            prompt = [token_at(seed, p) for p in range(workload.num_tokens)]
            watch = Stopwatch()
            self._complete([prompt], params(1))
            return watch.cost()
        # Whole blocks of context come from the prefix cache, so a step computes one token per sequence from
        # the first step on. The context is put there outside the clock.
        contexts = [[token_at(s, p) for p in range(workload.context + 1)] for s in range(workload.batch)]
        self._complete(contexts, params(1))
        watch = Stopwatch()
        self._complete(contexts, params(workload.num_tokens))
        return watch.cost()
