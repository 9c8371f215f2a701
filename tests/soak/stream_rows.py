"""Private memory while many rows of one token stream through `deepinfer run`.

    python -m tests.soak.stream_rows [--rows 200000] [--model MODEL] [--output FILE.json]

What must stay flat is RssAnon less the table that finds doubled ids, which may take 24 bytes a row; its
size is measured by filling one with the same ids. Samples are taken by rows written. The
model is a generated llama of a few thousand weights unless one is named: rows are what is under test.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from deepinfer_cli import _native
from deepinfer_cli.bench.conditions import machine
from tests.soak.process import deepinfer, private_bytes, watch
from tests.support.tiny_models import TinyLlama, write_gguf

TINY = TinyLlama(num_layers=1, hidden=64, ffn=128, num_heads=2, num_kv_heads=1, head_dim=32)
WARM_ROWS = 10_000
ALLOWED = 0.05


def write_rows(path: Path, num_rows: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for index in range(num_rows):
            file.write(json.dumps({"id": f"row-{index}", "prompt": f"Line {index} of many."}) + "\n")


class LineCounter:
    """Lines of a growing file, each byte read once."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self.num_lines = path, 0, 0

    def update(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while chunk := file.read(1 << 20):
                    self.num_lines += chunk.count(b"\n")
                    self._offset += len(chunk)
        return self.num_lines


def table_bytes(row_counts: list[int]) -> dict[int, int]:
    """Size of the id table after each of these numbers of rows (ascending)."""
    table, sizes, done = _native.IdTable(), {}, 0
    for count in row_counts:
        for index in range(done, count):
            table.insert(b'"row-%d"' % index, index)
        done, sizes[count] = max(done, count), table.memory_bytes
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--model", help="default: a tiny one, generated")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    about = machine()
    samples: list[tuple[int, int]] = []  # rows written, RssAnon
    with tempfile.TemporaryDirectory() as folder:
        rows, out = Path(folder) / "rows.jsonl", Path(folder) / "out.jsonl"
        write_rows(rows, arguments.rows)
        counter = LineCounter(out)

        def sample(pid: int) -> None:
            resident = private_bytes(pid)
            samples.append((counter.update(), resident))

        model = arguments.model or write_gguf(TINY, Path(folder) / "tiny-llama.gguf", "Q8_0")
        command = deepinfer("run", rows, "-o", out, "--model", model, "--max-tokens", "1")
        seen = watch(command, sample)
        assert counter.update() == arguments.rows
    steady = [(count, resident) for count, resident in samples if count >= WARM_ROWS]
    sizes = table_bytes(sorted({count for count, _ in steady}))
    net = [resident - sizes[count] for count, resident in steady]
    growth = max(net) / net[0] - 1
    num_steps = max(1, len(steady) // 10)
    for (count, resident), less in list(zip(steady, net, strict=True))[::num_steps]:
        print(
            f"{count:>8} rows  RssAnon {resident / 2**20:7.1f} MiB  less the id table {less / 2**20:7.1f} MiB"
        )
    print(
        f"{arguments.rows} rows in {seen.wall_seconds:.0f} s; growth after {WARM_ROWS}: {100 * growth:+.1f} %"
    )
    record = {
        "what": "RssAnon less the id table over a run of one-token rows",
        "machine": about,
        "model": Path(model).name,
        "num_rows": arguments.rows,
        "wall_seconds": round(seen.wall_seconds, 1),
        "first_mib": round(net[0] / 2**20, 1),
        "largest_mib": round(max(net) / 2**20, 1),
        "last_mib": round(net[-1] / 2**20, 1),
        "growth": round(growth, 4),
        "allowed_growth": ALLOWED,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if growth > ALLOWED:
        raise SystemExit(f"private memory grew by {100 * growth:.1f} %, more than {100 * ALLOWED:.0f} %")


if __name__ == "__main__":
    main()
