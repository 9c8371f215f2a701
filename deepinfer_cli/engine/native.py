"""The only door to the native engine: rows' parameters in, completions out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from deepinfer_cli import NUMERICS_VERSION, _native
from deepinfer_cli.config.settings import EngineConfig
from deepinfer_cli.engine import step_costs
from deepinfer_cli.engine.kv_plan import KvPlan, plan_blocks
from deepinfer_cli.engine.memory import MemoryPlan, plan_memory, private_bytes
from deepinfer_cli.errors import ConfigError
from deepinfer_cli.machine import cpu_name
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.requests.types import SamplingValues
from deepinfer_cli.results.types import FinishedRequest

MAX_WAITING = 256  # submitted, not yet admitted: what admission can choose from
_INT32_MAX = 2**31 - 1
_MOST_STEP_TOKENS = 1024  # of budgets that are tried
_SAMPLING_CACHE = 4096
_SAMPLING_CACHE_ITEMS = 64  # stop strings, ids and biases of one set; longer ones are not kept
_STOP_SECONDS = 1.0  # for the step that is being computed when the run ends early

_stuck_engines: list[_native.Engine] = []


def build_info() -> dict[str, str]:
    return dict(_native.build_info())


@cache
def constraint_engine() -> str | None:
    """Name and version of what enforces constraints; another one may word a text otherwise."""
    try:
        return f"llguidance {metadata.version('llguidance')}"
    except metadata.PackageNotFoundError:
        return None


def numerics(settings: EngineConfig, isa: str | None) -> dict[str, Any]:
    """What fixes the bits of every result besides the model: versions, instruction set, precision."""
    return {
        "version": NUMERICS_VERSION,
        "constraints": constraint_engine(),
        "build": build_info(),
        "isa": isa,
        "precision": settings.precision,
        "residual_threshold": settings.residual_threshold if settings.precision == "precise" else None,
        "kv_dtype": settings.kv_dtype,
    }


def planned_isa(model: LoadedModel, settings: EngineConfig) -> str | None:
    """The level that the engine will compute with; None where no kernels take part."""
    if model.family == "fake":
        return None
    return _native.default_isa() if settings.isa == "auto" else settings.isa


def num_threads(wanted: int) -> int:
    """0 = the cores this process may use."""
    return wanted or len(os.sched_getaffinity(0))


class NativeEngine:
    """A running engine on a loaded model. `close()` stops its thread; unfinished requests are dropped."""

    def __init__(
        self,
        model: LoadedModel,
        settings: EngineConfig,
        *,
        max_context: int,
        max_tokens_cap: int,
        max_row_bytes: int = 0,  # where rows come from outside
        busy_wait: float = 0.0,
    ) -> None:
        """busy_wait: share of its time by which each step is drawn out, to test what measures speed."""
        self._max_tokens_cap = max_tokens_cap
        self._pool = _native.ThreadPool(num_threads(settings.threads))
        self._executor = model.make_executor(self._pool)
        tokenizer = model.tokenizer
        table = _native.TokenTable(list(tokenizer.token_bytes), list(tokenizer.special))
        self.memory_plan = self._plan_memory(settings.max_memory, max_row_bytes, tokenizer.vocab_size)
        self.kv_plan: KvPlan = plan_blocks(
            self._executor.cache_groups,
            max_context=max_context,
            max_num_seqs=settings.max_num_seqs,
            budget_bytes=settings.kv_cache_bytes,
            free_bytes=_native.available_memory_bytes(),
            memory=self.memory_plan,
        )
        self._costs_file = None if busy_wait else self._find_costs_file(model, settings)
        self._engine = _native.Engine(
            self._executor,
            self._pool,
            table,
            num_blocks=self.kv_plan.num_blocks,
            max_num_seqs=settings.max_num_seqs,
            max_step_tokens=max(settings.max_step_tokens or _MOST_STEP_TOKENS, settings.max_num_seqs),
            prefill_chunk=settings.prefill_chunk,
            max_context=max_context,
            prefix_cache=settings.prefix_cache,
            look_ahead=MAX_WAITING,
            async_scheduling=settings.async_scheduling,
            tune_steps=settings.max_step_tokens == 0,
            step_costs=step_costs.read(self._costs_file),
            max_waiting=MAX_WAITING,
            eos_token_ids=list(model.eos_token_ids),
            debug_busy_wait=busy_wait,
        )
        self._sampling: dict[SamplingValues, _native.SamplingParams] = {}

    def _find_costs_file(self, model: LoadedModel, settings: EngineConfig) -> Path | None:
        if model.family == "fake":
            return None
        machine = {"cpu": cpu_name(), "threads": self.num_threads}
        return step_costs.file_for({"model": model.fingerprint, **machine, **self.numerics(settings)})

    def _plan_memory(self, limit: int, max_row_bytes: int, vocab_size: int) -> MemoryPlan | None:
        if not limit:
            return None
        weights = int(self.executor_info.get("weight_bytes", 0))
        return plan_memory(
            limit,
            held=private_bytes(),
            weights=weights,
            max_row_bytes=max_row_bytes,
            vocab_size=vocab_size,
        )

    def request(
        self,
        request_id: int,
        token_ids: Sequence[int],
        params: SamplingValues,
        seed: int,
        *,
        token_times: bool = False,
        constraint: _native.ConstraintTemplate | None = None,
        constraint_after: Sequence[int] = (),
    ) -> _native.Request:
        """constraint_after: ids in the output from which on the constraint holds, the end of thinking; none =
        from the first token on."""
        return _native.Request(
            request_id,
            list(token_ids),
            self._native_sampling(params),
            num_samples=params.n,
            seed=seed,
            prompt_logprobs=params.prompt_logprobs,
            token_times=token_times,
            constraint=constraint,
            constraint_after=list(constraint_after),
        )

    def scoring_request(
        self,
        request_id: int,
        token_ids: Sequence[int],
        positions: range,
        on_logits: Callable[[int, memoryview], object],
    ) -> _native.Request:
        """A request that samples nothing: `on_logits` gets the float32 row that predicts each position.

        It is called on the engine's thread; an exception in it fails the request.
        """
        nothing = self._native_sampling(SamplingValues(max_tokens=0))
        begin, end = positions.start, positions.stop
        return _native.Request(
            request_id, list(token_ids), nothing, score_begin=begin, score_end=end, on_logits=on_logits
        )

    def _native_sampling(self, params: SamplingValues) -> _native.SamplingParams:
        native = self._sampling.get(params)
        if native is None:
            max_tokens = self._max_tokens_cap if params.max_tokens is None else params.max_tokens
            native = _native.SamplingParams(
                temperature=params.temperature,
                top_k=params.top_k,
                top_p=params.top_p,
                min_p=params.min_p,
                repetition_penalty=params.repetition_penalty,
                presence_penalty=params.presence_penalty,
                frequency_penalty=params.frequency_penalty,
                logit_bias=list(params.logit_bias),
                stop=list(params.stop),
                stop_token_ids=list(params.stop_token_ids),
                include_stop=params.include_stop,
                min_tokens=params.min_tokens,
                max_tokens=min(max_tokens, _INT32_MAX),  # the context ends long before
                ignore_eos=params.ignore_eos,
                top_logprobs=params.top_logprobs,
            )
            if (
                len(params.logit_bias) + len(params.stop) + len(params.stop_token_ids)
                <= _SAMPLING_CACHE_ITEMS
            ):
                if len(self._sampling) >= _SAMPLING_CACHE:
                    self._sampling.clear()
                self._sampling[params] = native
        return native

    def try_submit(self, request: _native.Request) -> bool:
        """False when the waiting queue is full: poll, then try again."""
        return self._engine.try_submit(request)

    def poll(self, max_completions: int, timeout_s: float) -> Sequence[FinishedRequest]:
        return self._engine.poll(max_completions, timeout_s)

    def abort_all(self) -> None:
        self._engine.abort_all()

    def abort_unstarted(self) -> None:
        """Gives up what waits and has never been computed; the rest goes on."""
        self._engine.abort_unstarted()

    def progress(self) -> tuple[int, int]:
        """Changes while the engine computes, also inside a long step."""
        return int(self._engine.stats()["num_steps"]), self._pool.num_calls

    def describe(self) -> str:
        """What it is doing, as JSON for people; works while a step hangs."""
        return self._engine.describe()

    def num_running(self) -> int:
        """Samples being computed right now."""
        return int(self._engine.stats()["num_running"])

    def stats(self) -> dict[str, Any]:
        return dict(self._engine.stats())

    def numerics(self, settings: EngineConfig) -> dict[str, Any]:
        """As they turned out."""
        info = dict(getattr(self._executor, "info", None) or {})
        return numerics(settings, info.get("isa"))

    @property
    def num_threads(self) -> int:
        return int(self._pool.num_threads)

    @property
    def pool(self) -> _native.ThreadPool:
        """The threads that compute; measurements of the machine use them while the engine rests."""
        return self._pool

    @property
    def executor_info(self) -> dict[str, Any]:
        """Sizes of the model as the executor holds it; empty for the built-in fake one."""
        return dict(getattr(self._executor, "info", None) or {})

    @property
    def cache_groups(self) -> Sequence[Any]:
        return list(self._executor.cache_groups)

    def close(self) -> bool:
        """False when a step goes on for too long: then only the end of the process ends it."""
        if self._engine.try_stop(_STOP_SECONDS):
            step_costs.write(self._costs_file, self._engine.step_costs())
            return True
        _stuck_engines.append(self._engine)  # its destructor would wait
        return False


def is_stuck() -> bool:
    """Whether an engine's thread could not be ended."""
    return bool(_stuck_engines)


def is_request_refusal(error: _native.NativeError) -> bool:
    """Whether the engine refused one request, not itself: its row becomes an error row."""
    return len(error.args) > 1 and error.args[1] == "bad_request"


NativeError = _native.NativeError
logit_divergence = _native.logit_divergence


def context_limit(model: LoadedModel, wanted: int | None) -> int:
    """Tokens of prompt and output together."""
    if wanted is not None and wanted > model.max_context:
        raise ConfigError(
            f"max_model_len is {wanted:,}, but {model.name} was made for {model.max_context:,} tokens",
            f"set it to {model.max_context} or less",
        )
    return wanted or model.max_context
