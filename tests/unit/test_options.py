"""The option list is frozen: a new flag is a deliberate act.

`PYTHONPATH=. python tests/unit/test_options.py` rewrites it.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from typer.core import TyperOption

from deepinfer_cli.app import COMMANDS, load_command
from deepinfer_cli.config.settings import all_settings

GOLDEN = Path(__file__).parents[1] / "golden" / "options.txt"

# Announced for later; showing them before they work would be a promise broken on use.
NOT_YET = ("--constraint", "--speculative")


def option_list() -> str:
    lines = []
    for name in COMMANDS:
        lines.append(name)
        for param in load_command(name).params:
            if isinstance(param, TyperOption):
                takes = (
                    ""
                    if param.is_flag or param.count
                    else f" {param.metavar or param.type_descriptor.annotation}"
                )
                many = " ..." if param.multiple else ""
                lines.append(f"  {' '.join([*param.opts, *param.secondary_opts])}{takes}{many}")
            else:
                lines.append(f"  {param.name}")
    return "\n".join(lines) + "\n"


def test_options_are_the_frozen_ones() -> None:
    old, new = GOLDEN.read_text(), option_list()
    changes = "\n".join(
        difflib.unified_diff(old.splitlines(), new.splitlines(), "frozen", "now", lineterm="")
    )
    assert old == new, changes


def test_every_flag_of_the_table_is_an_option_of_run() -> None:
    options = {flag for p in load_command("run").params for flag in (*p.opts, *p.secondary_opts)}
    for spec in all_settings().values():
        assert options.issuperset((*spec.flags, *spec.off_flags)), spec.key
    assert not options & set(NOT_YET)


if __name__ == "__main__":
    GOLDEN.write_text(option_list())
