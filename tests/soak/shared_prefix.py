"""What the prefix cache brings where all rows begin alike: 1,500 shared tokens, tails of 20, one token out.

    python -m tests.soak.shared_prefix MODEL [--rows 200] [--sets 1] [--threads 1] [--output FILE.json]

Process CPU seconds without the cache over those with it, each set with a prefix of its own, and whether both
gave the same tokens with the same log-probabilities, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import struct
import time
from pathlib import Path

from deepinfer_cli.bench.conditions import CpuClock, Load, machine
from deepinfer_cli.bench.workloads import token_at
from deepinfer_cli.config.layers import FlagUse, resolve
from deepinfer_cli.console import Console, Talk
from deepinfer_cli.engine.batch_run import load_model
from deepinfer_cli.engine.native import NativeEngine
from deepinfer_cli.requests.types import SamplingValues

PREFIX, TAIL = 1500, 20  # tokens


class Runner:
    def __init__(self, model: Path, num_threads: int, prefix_cache: bool) -> None:
        flags = [FlagUse("model", "--model", str(model)), FlagUse("threads", "--threads", str(num_threads))]
        flags.append(FlagUse("set", "--set", f"prefix_cache={str(prefix_cache).lower()}"))
        config = resolve(flags).config
        self._engine = NativeEngine(
            load_model(config, Console(Talk(quiet=True))), config.engine, max_context=2048, max_tokens_cap=64
        )
        self._num_submitted = 0

    def run(self, prompts: list[list[int]]) -> tuple[float, dict[int, bytes]]:
        """CPU seconds, and of each prompt its token and the bits of its log-probability."""
        params = SamplingValues(temperature=0.0, max_tokens=1, ignore_eos=True, top_logprobs=5)
        first = self._num_submitted
        results: dict[int, bytes] = {}
        started = time.process_time()
        while len(results) < len(prompts):
            while self._num_submitted - first < len(prompts):
                number = self._num_submitted
                if not self._engine.try_submit(
                    self._engine.request(number, prompts[number - first], params, seed=0)
                ):
                    break
                self._num_submitted += 1
            for done in self._engine.poll(len(prompts), 60.0):
                if done.error:
                    raise SystemExit(done.error)
                sample = done.samples[0]
                scores = [s for t in sample.logprobs for s in (t.logprob, *(x for _, x in t.top))]
                results[done.id - first] = struct.pack(f"<i{len(scores)}d", sample.tokens[0], *scores)
        return time.process_time() - started, results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--sets", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with_cache = Runner(arguments.model, arguments.threads, prefix_cache=True)
    without = Runner(arguments.model, arguments.threads, prefix_cache=False)
    before, costs = CpuClock.read(), []
    for number in range(arguments.sets):
        prefix = [token_at(1000 + number, position) for position in range(PREFIX)]
        tails = [[token_at(7 * row + number, 2000 + p) for p in range(TAIL)] for row in range(arguments.rows)]
        prompts = [prefix + tail for tail in tails]
        (on, cached), (off, computed) = with_cache.run(prompts), without.run(prompts)
        if cached != computed:
            differing = sum(cached[row] != computed[row] for row in cached)
            raise SystemExit(f"{differing} of {arguments.rows} rows differ with the cache")
        costs.append((on, off))
        print(f"{on:.2f} s with the cache, {off:.2f} s without: {off / on:.1f} times; all rows equal")
    record = {
        "what": f"CPU seconds of {arguments.rows} rows: {PREFIX} shared tokens, tails of {TAIL}, one out",
        "machine": machine(),
        "model": arguments.model.name,
        "num_threads": arguments.threads,
        "with_cache_seconds": [round(on, 3) for on, _ in costs],
        "without_seconds": [round(off, 3) for _, off in costs],
        "rows_equal": True,
        "load": Load.between(before, CpuClock.read()).as_dict(),
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
