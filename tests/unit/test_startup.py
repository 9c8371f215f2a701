"""What a start imports. Time itself is not asserted: these imports are where it goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import clean_environ
from tests.support.runs import write_rows

PROBE = """
import sys
from deepinfer_cli.__main__ import main
main(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def imported_by(*args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args], capture_output=True, text=True, check=True, env=clean_environ()
    )
    return set(done.stderr.split())


HEAVY = {"torch", "numpy", "transformers", "tokenizers", "huggingface_hub", "jinja2", "jsonschema", "rich"}


@pytest.mark.parametrize(
    ("args", "also"),
    [
        (["--help"], ("pydantic", "yaml")),
        (["--version"], ("yaml",)),
        (["run", "x", "--print-config"], ("pydantic",)),
    ],
    ids=lambda value: " ".join(sorted(value)),
)
def test_nothing_heavy_is_imported(args: list[str], also: tuple[str, ...]) -> None:
    assert not imported_by(*args) & (HEAVY | set(also))


def test_a_config_file_is_checked_without_the_grammar_of_iris(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("max_tokens: 3\n")
    path = write_rows(tmp_path / "rows.jsonl", [{"prompt": "x"}])
    found = imported_by("run", "--model", "fake", "--config", str(config), str(path))
    assert "jsonschema" in found and "lark" not in found


def test_help_of_run_needs_no_torch_and_no_numpy() -> None:
    assert not imported_by("run", "--help") & {"torch", "numpy", "transformers", "tokenizers", "rich"}


MODULES = """
import sys
from deepinfer_cli.__main__ import main
main(["run", "--model", "fake", "--max-tokens", "3", sys.argv[1]])
print(*[m for m in sys.modules if "constraint" in m or m in ("jsonschema", "llguidance")], file=sys.stderr)
"""


def test_rows_without_a_constraint_start_no_part_of_it(tmp_path: Path) -> None:
    for constraint, wanted in ((None, False), ({"choice": ["a"]}, True)):
        path = write_rows(tmp_path / "rows.jsonl", [{"prompt": "x", "constraint": constraint}])
        command = [sys.executable, "-c", MODULES, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=clean_environ())
        found = done.stderr.splitlines()[-1].split()
        assert ("deepinfer_cli.constraints.pool" in found) is wanted
        assert not {"jsonschema", "llguidance"} & set(found)
