"""How much of a run's CPU time is spent outside the engine: reading, parsing, rendering, tokenising, writing.

python -m tests.support.host_share MODEL [ROWS]

The run loop has the main thread for itself; the engine computes, samples and detokenises on its own threads.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

_WORDS = (
    "the",
    "of",
    "water",
    "light",
    "small",
    "river",
    "house",
    "machine",
    "people",
    "explain",
    "why",
    "move",
)


def typical_rows(path: Path, count: int) -> None:
    """Chat rows of about 50 prompt tokens that generate 64 tokens each."""
    choose = random.Random(2)
    with path.open("w") as file:
        for i in range(count):
            content = " ".join(choose.choices(_WORDS, k=22)) + "?"
            row = {
                "id": f"row-{i}",
                "messages": [{"role": "user", "content": content}],
                "max_tokens": 64,
                "ignore_eos": True,
            }
            file.write(json.dumps(row) + "\n")


def main() -> None:
    model, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    from deepinfer_cli.config.run_config import RunConfig
    from deepinfer_cli.config.settings import ModelConfig, OutputConfig
    from deepinfer_cli.console import Console
    from deepinfer_cli.engine.batch_run import run

    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.jsonl")
        typical_rows(rows, count)
        config = RunConfig(
            inputs=(str(rows),),
            model=ModelConfig(model=model),
            output=OutputConfig(output=str(Path(folder, "out.jsonl"))),
        )
        thread, process = time.thread_time(), time.process_time()
        code = run(config, Console())
        thread, process = time.thread_time() - thread, time.process_time() - process
    print(
        f"exit {code}; {count} rows; {process:.2f} s of CPU, {thread:.2f} s ({thread / process:.1%}) outside"
    )


if __name__ == "__main__":
    main()
