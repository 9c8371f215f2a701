"""Where the CPU time of a typical run goes: the native engine's threads, or rows, prompts and text in Python.

    python -m tests.soak.profile_rows MODEL [--rows 2000] [--max-tokens 32] [--output FILE.json]

The engine's loop runs in a thread named di-engine (with di-worker helpers): scheduling, the model, sampling
and detokenising. Everything else is reading, parsing, rendering, tokenising and writing.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path

from deepinfer_cli.bench.conditions import CpuClock, Load, machine
from tests.soak.process import deepinfer, watch

_SUBJECTS = (
    "how a canal lock works", "the smell of rain", "why glass is transparent", "the first lighthouses",
    "keeping a sourdough starter", "how sonar finds fish", "the history of the umbrella", "paper folding",
    "why cats purr", "the rules of curling", "how a refrigerator moves heat", "bridges made of rope",
)  # fmt: skip
_NOTES = (
    "The night bus will leave from the north gate until the works in Mill Street are finished.",
    "Two of the five pumps were replaced in March, and the other three are due in the autumn.",
    "Members voted by a narrow margin to keep the old opening hours for another year.",
    "The second sample was contaminated, so the whole series has to be measured again.",
    "Visitors praised the garden but complained about the signs and the price of coffee.",
    "The printer on the third floor takes the wrong paper whenever the tray is pulled out too quickly.",
    "A late frost spoiled the apricots, while the cherries came through better than anyone expected.",
    "The choir needs two more tenors before the concert and somewhere dry to rehearse.",
)  # fmt: skip
_ASKS = ("Explain {s} in two sentences.", "Give three facts about {s}.", "Write a short paragraph about {s}.")
_TASKS = (
    "Summarise in one sentence: {t}",
    "Write a title for this text. {t}",
    "What would a reader ask? {t}",
)


def write_rows(path: Path, num_rows: int) -> None:
    """Chat rows of some 30 to 180 tokens, half of them short questions."""
    rng = random.Random(3)
    with path.open("w", encoding="utf-8") as file:
        for index in range(num_rows):
            if index % 2 == 0:
                text = rng.choice(_ASKS).format(s=rng.choice(_SUBJECTS))
            else:
                text = rng.choice(_TASKS).format(t=" ".join(rng.sample(_NOTES, rng.randint(1, 7))))
            row = {"id": f"r{index}", "messages": [{"role": "user", "content": text}]}
            file.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, out = Path(folder) / "rows.jsonl", Path(folder) / "out.jsonl"
        write_rows(rows, arguments.rows)
        command = deepinfer("run", rows, "-o", out, "--model", arguments.model, "--temperature", "0")
        command += ["--max-tokens", str(arguments.max_tokens), "--threads", str(arguments.threads)]
        about, before = machine(), CpuClock.read()
        seen = watch(command)
        load = Load.between(before, CpuClock.read())
        results = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    usage = [row["usage"] for row in results]
    prompt = sum(u["prompt_tokens"] for u in usage)
    generated = sum(u["completion_tokens"] for u in usage)
    engine = sum(cpu for name, cpu in seen.threads.values() if name.startswith("di-"))
    total = sum(cpu for _, cpu in seen.threads.values())
    share = 1 - engine / total
    print(f"{len(results)} rows, {prompt} prompt and {generated} generated tokens, {seen.wall_seconds:.1f} s")
    print(f"CPU: {total:.1f} s, of it engine threads {engine:.1f} s; the rest is {100 * share:.1f} %")
    print(f"tokens per CPU second: {(prompt + generated) / total:.0f}")
    record = {
        "what": "share of process CPU time outside the engine's threads, start-up included",
        "machine": about,
        "model": arguments.model.name,
        "num_rows": len(results),
        "num_prompt_tokens": prompt,
        "num_generated_tokens": generated,
        "max_tokens": arguments.max_tokens,
        "num_threads": arguments.threads,
        "cpu_seconds": round(total, 2),
        "engine_cpu_seconds": round(engine, 2),
        "share_outside_engine": round(share, 4),
        "load": load.as_dict(),
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
