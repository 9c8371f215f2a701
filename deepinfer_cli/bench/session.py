"""Measures the cells of a sweep: repetitions in rounds over all cells, under a time budget.

Rounds go forth and back over the cells, so that what drifts slowly meets all of them alike. When loading the
model for each change of engine settings would eat the budget, one group of settings is measured after the
other instead, and the header says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deepinfer_cli.bench.against import LivePeer, PeerFailed
from deepinfer_cli.bench.asks import AskSource
from deepinfer_cli.bench.constraints import template_of
from deepinfer_cli.bench.measure import Ask, CellFailed, Measurement, Stopped
from deepinfer_cli.bench.record import CONVERGED_WIDTH, CellResult, Journal
from deepinfer_cli.bench.spec import Cell, Slo
from deepinfer_cli.bench.work import model_work
from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.config.settings import EngineConfig
from deepinfer_cli.engine.native import NativeEngine, NativeError, context_limit
from deepinfer_cli.errors import DeepInferError, InternalError, from_native
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.progress import Progress

MIN_REPETITIONS: Final = 5
MAX_REPETITIONS: Final = 15
BUDGET_S: Final = 480.0
_LOAD_SHARE: Final = 0.25  # of the budget that may go into loading models


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    repetitions: int | None = None  # exactly so many; None = MIN to MAX as needed
    budget_s: float | None = BUDGET_S  # None = no limit

    def wants(self, result: CellResult) -> bool:
        """Whether a cell needs one more repetition."""
        if result.failure is not None:
            return False
        done = len(result.repetitions)
        if self.repetitions is not None:
            return done < self.repetitions
        if done < MIN_REPETITIONS:
            return True
        return done < MAX_REPETITIONS and result.relative_width > CONVERGED_WIDTH


@dataclass(slots=True)
class Session:
    config: RunConfig
    model_of: Callable[[RunConfig], LoadedModel]
    results: Sequence[CellResult]
    asks: AskSource
    slo: Slo
    price_per_hour: float | None
    effort: Effort
    journal: Journal
    progress: Progress
    is_stopped: Callable[[], bool]
    peer: LivePeer | None = None
    order: str = "interleaved"
    load_seconds: float = 0.0
    is_out_of_time: bool = False
    peer_failure: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # of the last engine: numerics, threads, KV pool
    _deadline: float | None = None
    _costs: dict[str, float] = field(default_factory=dict)  # seconds of a cell's last repetition
    _engine: NativeEngine | None = None
    _model: LoadedModel | None = None
    _settings: EngineConfig | None = None
    _templates: dict[str, Any] = field(default_factory=dict)  # of the model, by the cell's constraint

    def run(self) -> None:
        """Until every cell has its repetitions, time is up, or somebody wants to stop."""
        if self.effort.budget_s is not None:
            self._deadline = time.monotonic() + self.effort.budget_s
        least = self.effort.repetitions or MIN_REPETITIONS
        self.progress.total = sum(max(0, least - len(r.repetitions)) for r in self.results)
        try:
            for number in range(10**9):
                pending = self._pending()
                if not pending or not self._round(pending if number % 2 == 0 else pending[::-1]):
                    break
                if number == 0:
                    self._choose_order()
        except Stopped:
            pass
        finally:
            self._close()

    def _pending(self) -> list[CellResult]:
        """Cells that want a repetition, those with the same engine settings together."""
        wanting = [r for r in self.results if self.effort.wants(r)]
        order = list(dict.fromkeys(r.cell.engine for r in self.results))
        wanting.sort(key=lambda r: (order.index(r.cell.engine), r.cell.index))
        if self.order == "blocks" and wanting:
            return [r for r in wanting if r.cell.engine == wanting[0].cell.engine]
        return wanting

    def _choose_order(self) -> None:
        num_groups = len({r.cell.engine for r in self.results})
        repetitions = self.effort.repetitions or MIN_REPETITIONS
        to_come = self.load_seconds * (repetitions - 1) if num_groups > 1 else 0.0
        if to_come > _LOAD_SHARE * (self.effort.budget_s or BUDGET_S):
            self.order = "blocks"

    def _round(self, results: Sequence[CellResult]) -> bool:
        """One repetition of each; false when time allowed none."""
        measured = 0
        for result in results:
            if self.is_stopped():
                raise Stopped
            if self._deadline is not None and time.monotonic() + self._expected(result) > self._deadline:
                self.is_out_of_time = True
                continue
            self._one(result)
            measured += 1
        return measured > 0

    def _expected(self, result: CellResult) -> float:
        """Seconds that a repetition will take: as long as the last one; the first one by its tokens."""
        known = [(self._costs[r.key], r.cell.num_tokens) for r in self.results if r.key in self._costs]
        if result.key in self._costs or not known:
            return self._costs.get(result.key, 0.0)
        return result.cell.num_tokens * sum(cost for cost, _ in known) / sum(tokens for _, tokens in known)

    def _one(self, result: CellResult) -> None:
        started = time.monotonic()
        number = len(result.repetitions)
        self.progress.note = result.cell.label
        self.progress.tick()
        try:
            values = self._measure(result.cell, number)
        except CellFailed as error:
            self._fail(result, str(error))
        except NativeError as error:
            self._fail(result, from_native(error).message)
            self._close()  # whatever state it is in, the next cell gets a fresh one
        except InternalError:
            raise
        except DeepInferError as error:
            self._fail(result, error.message)
            self._close()
        except MemoryError:
            self._fail(result, "out of memory")
            self._close()
        else:
            self._costs[result.key] = time.monotonic() - started
            result.repetitions.append(values)
            self.journal.append("repetition", key=result.key, values=values)
        self.progress.done += 1
        self.progress.total = max(self.progress.total or 0, self.progress.done)

    def _fail(self, result: CellResult, reason: str) -> None:
        result.failure = reason
        self.progress.failed += 1
        self.journal.append("failure", key=result.key, reason=reason)

    def _measure(self, cell: Cell, number: int) -> dict[str, Any]:
        if cell.load.speculation != "none":
            raise CellFailed(f"speculation {cell.load.speculation}: this build has none")
        engine, model = self._engine_for(cell)
        self._check_context(cell, model)
        work = model_work(model, engine.executor_info, engine.cache_groups, cell.engine.precision)
        measurement = Measurement(
            engine=engine,
            cell=cell,
            work=work,
            slo=self.slo,
            price_per_hour=self.price_per_hour,
            is_stopped=self.is_stopped,
            expects_lengths=self.asks.expects_lengths,
            constraint=self._template(model, cell.load.constraint),
        )
        asks, warmup = self.asks.asks(cell, number), self.asks.warmup(cell, number)
        is_constrained = cell.load.constraint != "none" or any(ask.constraint is not None for ask in asks)
        if is_constrained and self.peer is not None:
            raise CellFailed("answers are under a constraint, and the peer is not asked for one")
        if self.peer is None:
            return measurement.run(asks, warmup)
        theirs = self._peer(cell, asks, warmup) if number % 2 else None
        values = measurement.run(asks, warmup)
        return {**values, "peer": theirs if theirs is not None else self._peer(cell, asks, warmup)}

    def _peer(self, cell: Cell, asks: Sequence[Ask], warmup: Sequence[Ask]) -> dict[str, Any]:
        """The peer's turn. Once it is dead our own numbers go on, and the reason stays beside them."""
        assert self.peer is not None
        if self.peer_failure is not None:
            return {"error": self.peer_failure}
        try:
            return self.peer.measure(asks, warmup, cell.load.concurrency)
        except PeerFailed as error:
            if not self.peer.is_alive:
                self.peer_failure = str(error)
            return {"error": str(error)}

    def _check_context(self, cell: Cell, model: LoadedModel) -> None:
        if cell.rows is not None:
            return
        limit = context_limit(model, cell.engine.max_model_len)
        needed = cell.load.input_len + cell.load.output_len
        if needed > limit:
            raise CellFailed(
                f"{cell.load.input_len:,} + {cell.load.output_len:,} tokens do not fit into the context of "
                f"{limit:,}"
            )

    # ---- engines -------------------------------------------------------------------------------------------

    def _engine_for(self, cell: Cell) -> tuple[NativeEngine, LoadedModel]:
        """The engine with the cell's settings; another is closed first: two need not fit."""
        if self._engine is None or self._model is None or self._settings != cell.engine:
            self._close()
            started = time.monotonic()
            values = {key: getattr(cell.engine, key) for key in EngineConfig.__dataclass_fields__}
            config = self.config.with_values(values, Origin("cli", "bench"))
            self._model = self.model_of(config)
            self._engine = NativeEngine(
                self._model,
                cell.engine,
                max_context=context_limit(self._model, cell.engine.max_model_len),
                max_tokens_cap=config.sampling.max_tokens_cap,
            )
            self._settings = cell.engine
            self.load_seconds += time.monotonic() - started
            self.facts = {
                "numerics": self._engine.numerics(cell.engine),
                "num_threads": self._engine.num_threads,
                "kv_pool": str(self._engine.kv_plan),
            }
        return self._engine, self._model

    def _template(self, model: LoadedModel, name: str) -> Any:
        if name not in self._templates:
            self._templates[name] = template_of(model, name)
        return self._templates[name]

    def _close(self) -> None:
        self._templates.clear()
        if self._engine is not None:
            self._engine.close()
        self._engine = self._model = self._settings = None
