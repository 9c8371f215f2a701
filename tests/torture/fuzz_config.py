"""Fuzzes what users write: the YAML config file, `--set` values and environment variables.

python -m tests.torture.fuzz_config --seconds 600
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from deepinfer_cli.config.json_schema import check_file
from deepinfer_cli.config.layers import FlagUse, print_config, resolve
from deepinfer_cli.config.settings import all_settings
from deepinfer_cli.config.yaml_source import parse_settings
from tests.torture import mutate
from tests.torture.fuzzing import main

SEEDS = (
    "model: a\nseed: 1\n",
    "temperature: 0.5\nstop: [no, 'off']\nmax_tokens: 10\n",
    "profiles:\n  fast: {n: 2, top_p: 0.5}\n  slow:\n    - x\n",
    "logit_bias: {5: 1.5, 7: -3}\nstop_token_ids: [1, 2]\n",
    "system: |\n  two\n  lines\nchat: yes\n",
    "system: >-\n  folded\n   text\n",
    "a: &x [1, 2]\nstop: *x\n",
    "stop: &a [x, x]\nmodel: &b [*a, *a]\nsystem: [*b, *b]\n",
    "%YAML 1.2\n---\nmax_failures: 5%\nshard: 1/3\n...\n",
    "kv_cache_bytes: 2GiB\nmax_row_bytes: 1_000\n",
)
WORDS = (
    *("<<: ", "!!python/object:os.system ", "!x ", "&a ", "*a ", "- ", "? ", ": ", "[", "]", "{", "}", ", "),
    *("|", ">", "'", '"', "\\", "#", "%", "@", "`", "---\n", "...\n", "\t", "\n", "\r\n", "\x85", "\u2028"),
    *("1e999", ".nan", "0x1F", "0o17", "1_000", "~", "null", "12:30:45", "9" * 70, '"\\ud800"', '"\\0"'),
    *(f"{key}: " for key in all_settings()),
)


def settings_file(data: bytes) -> None:
    check_file(parse_settings(data.decode("utf-8", "surrogatepass"), "f.yaml"))


def make_settings_file(rng: random.Random) -> bytes:
    return mutate.text(rng, SEEDS, WORDS, 4000).encode("utf-8", "surrogatepass")


def command_line(data: bytes) -> None:
    """[["key", "value"], ...] as --set, the even ones in the environment as well."""
    pairs = json.loads(data)
    flags = [FlagUse("set", "--set", f"{key}={value}") for key, value in pairs]
    environ = {f"DEEPINFER_{key.upper()}": value for key, value in pairs[::2]}
    print_config(resolve(flags, environ=environ, config_file=None, profile=None).config)


def make_command_line(rng: random.Random) -> bytes:
    def text() -> str:
        if rng.random() < 0.4:
            return json.dumps(rng.choice(mutate.ODD_VALUES))
        return mutate.text(rng, ("5", "[a, b]", "{1: 2}", "2GiB", "1/2", "5%", "true", "x"), WORDS, 200)

    keys: list[Any] = [*all_settings(), "nosuch", "profiles", "seq_seed"]
    return json.dumps([[rng.choice(keys), text()] for _ in range(rng.randint(1, 3))]).encode()


TARGETS = {
    "settings_file": (settings_file, make_settings_file),
    "command_line": (command_line, make_command_line),
}

if __name__ == "__main__":
    sys.exit(main(__doc__, TARGETS))
