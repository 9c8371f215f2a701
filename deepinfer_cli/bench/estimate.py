"""`--dry-run`: the cells, and how long they will take at least, from sizes and the machine's limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from deepinfer_cli import machine
from deepinfer_cli.bench.session import MIN_REPETITIONS
from deepinfer_cli.bench.spec import Cell, Sweep
from deepinfer_cli.models.types import LoadedModel

_SHARE: Final = 1 / 3  # of the machine's limits that the estimate takes for granted
_LIMIT_SECONDS: Final = 0.1


def estimate_lines(cells: Sequence[Cell], sweep: Sweep, model: LoadedModel) -> list[str]:
    context = {cell.engine.max_model_len or model.max_context for cell in cells}
    speed = _Speed.of(model)
    lines, total, known = [], 0.0, speed is not None
    for cell in cells:
        load = cell.load
        what = f"{cell.num_prompts:,} prompts"
        if cell.rows is None:
            what += f" of {load.input_len:,} + {load.output_len:,} tokens"
        line = f"cell {cell.index + 1}: {cell.label}; {what}, {load.concurrency:,} at once"
        limit = cell.engine.max_model_len or model.max_context
        if cell.rows is None and load.input_len + load.output_len > limit:
            line += f"; will fail: the context is {limit:,} tokens"
        elif speed is not None and cell.rows is None:
            seconds = speed.seconds(cell)
            total += seconds * (load.repetitions or MIN_REPETITIONS)
            line += f"; about {seconds:.1f} s a repetition"
        else:
            known = False
        lines.append(line)
    text = f"{len(cells):,} cells; context {', '.join(f'{c:,}' for c in sorted(context))} tokens"
    if known and total:
        text += f"; about {max(1.0, total / 60):.0f} min at a third of this machine's limits"
    budget = sweep.budget_s
    if budget is not None:
        text += f"; budget {budget / 60:.1f} min"
    return [*lines, text]


class _Speed:
    """A guess from the bytes and parameters of the model's files; no weights are loaded."""

    def __init__(self, num_bytes: int, num_parameters: int, gbps: float, gops: float) -> None:
        self._step_s = num_bytes / gbps * 1e-9
        self._token_s = 2 * num_parameters / gops * 1e-9

    @classmethod
    def of(cls, model: Any) -> _Speed | None:
        file = getattr(model, "file", None)
        if file is None:
            return None
        num_parameters = 0
        for tensor in file.tensors:
            size = 1
            for extent in tensor.shape:
                size *= extent
            num_parameters += size
        gops = machine.peak_gops("int8", _LIMIT_SECONDS) or machine.peak_gops("fp32", _LIMIT_SECONDS)
        gbps = machine.memory_read_gbps(_LIMIT_SECONDS)
        return cls(file.num_bytes, num_parameters, gbps, gops) if gops and gbps else None

    def seconds(self, cell: Cell) -> float:
        load, n = cell.load, cell.num_prompts
        width = min(load.concurrency, n)
        num_steps = -(-n // width) * load.output_len
        decode = num_steps * max(self._step_s, width * self._token_s)
        return (n * load.input_len * self._token_s + decode) / _SHARE
