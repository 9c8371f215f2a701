"""Sweep files: strict YAML, every complaint with file, line and column.

sweep: {concurrency: [1, 8], input_len: [32, 128]}    # cells: the product
fixed: {output_len: 16, repetitions: 5}               # the same in every cell
slo: {ttft_ms: 500, tpot_ms: 50}
price_per_hour: 0.2
budget_s: 300
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from deepinfer_cli.bench.spec import (
    ALIASES,
    FIXED_ONLY,
    MAX_CELLS,
    Slo,
    Sweep,
    slo_settings,
    sweep_settings,
)
from deepinfer_cli.config.spec import Setting
from deepinfer_cli.config.values import NULL_WORDS, check_value
from deepinfer_cli.config.yaml_source import NodeReader, compose, read_text
from deepinfer_cli.errors import ConfigError

MAX_BUDGET_S: Final = 7 * 86400
_NUMBERS: Final = {
    "price_per_hour": Setting("price_per_hour", "sweep", "float", False, None, "", minimum=0, maximum=1e9),
    "budget_s": Setting(
        "budget_s", "sweep", "float", False, None, "", minimum=0, exclusive_minimum=True, maximum=MAX_BUDGET_S
    ),
}
_SECTIONS: Final = ("sweep", "fixed", "slo", *_NUMBERS)


def number_setting(key: str) -> Setting:
    """What `price_per_hour` and `budget_s` take, in a file or on the command line."""
    return _NUMBERS[key]


def read_sweep(path: str) -> Sweep:
    return parse_sweep(read_text(path), path)


def parse_sweep(text: str, file: str) -> Sweep:
    """The sweep in a YAML document. ConfigError names the first thing wrong."""
    root = compose(text, file)
    if root is None or (isinstance(root, yaml.ScalarNode) and root.value in NULL_WORDS):
        raise ConfigError(f"{file}: the sweep file is empty", "a file with `sweep:` and `fixed:`")
    return _SweepReader(NodeReader(file)).sweep(root)


def unknown_key(what: str, key: str, known: Iterable[str]) -> tuple[str, str]:
    """(message, hint) about a key that is not there."""
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
    return f"unknown {what} {key!r}", hint


class _SweepReader:
    def __init__(self, reader: NodeReader) -> None:
        self._reader = reader

    def sweep(self, root: yaml.Node) -> Sweep:
        sections = {key: (key_node, node) for key, key_node, node in self._pairs(root, "the sweep file")}
        for key, (key_node, _) in sections.items():
            if key not in _SECTIONS:
                raise self._reader.fail(key_node, *unknown_key("section", key, _SECTIONS))
        if "sweep" not in sections and "fixed" not in sections:
            raise self._reader.fail(root, "no `sweep:` and no `fixed:`", "sweep: {concurrency: [1, 8]}")
        nodes = {key: node for key, (_, node) in sections.items()}
        swept = self._swept(nodes["sweep"]) if "sweep" in nodes else {}
        fixed = self._fixed(nodes["fixed"], swept) if "fixed" in nodes else {}
        slo = self._slo(nodes["slo"]) if "slo" in nodes else Slo()
        numbers = {key: self._value(spec, nodes[key]) for key, spec in _NUMBERS.items() if key in nodes}
        found = Sweep(swept, fixed, slo, **numbers)
        if found.num_cells > MAX_CELLS:
            raise self._reader.fail(root, f"{found.num_cells:,} cells; at most {MAX_CELLS:,} are measured")
        return found

    def _pairs(self, node: yaml.Node, what: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self._reader.fail(node, f"{what} must be a mapping from names to values")
        self._reader.enter(node, ())
        return self._reader.pairs(node, ())

    def _known(self, node: yaml.Node, what: str) -> list[tuple[Setting, yaml.Node, yaml.Node]]:
        """The settings in `sweep:` or `fixed:`, aliases resolved, doubles refused."""
        table = sweep_settings()
        found: dict[str, tuple[Setting, yaml.Node, yaml.Node]] = {}
        for written, key_node, value_node in self._pairs(node, what):
            key = ALIASES.get(written, written)
            if key not in table:
                raise self._reader.fail(key_node, *unknown_key("key", written, (*table, *ALIASES)))
            if key in found:
                raise self._reader.fail(key_node, f"{written!r} and {key!r} are the same key")
            found[key] = (table[key], key_node, value_node)
        return list(found.values())

    def _value(self, spec: Setting, node: yaml.Node) -> Any:
        value = self._reader.value(spec, node, (spec.key,))
        try:
            return check_value(spec, value)
        except ValueError as error:
            raise self._reader.fail(node, f"{spec.key} {error}") from None

    def _swept(self, node: yaml.Node) -> dict[str, tuple[Any, ...]]:
        swept: dict[str, tuple[Any, ...]] = {}
        for spec, key_node, value_node in self._known(node, "sweep"):
            if spec.key in FIXED_ONLY:
                raise self._reader.fail(
                    key_node, f"{spec.key} is the same in every cell", "move it to `fixed:`"
                )
            if not isinstance(value_node, yaml.SequenceNode):
                raise self._reader.fail(value_node, f"sweep.{spec.key} must be a list of values")
            values = [self._value(spec, item) for item in value_node.value]
            if not values:
                raise self._reader.fail(value_node, f"sweep.{spec.key} has no values")
            for i, value in enumerate(values):
                if value in values[:i]:
                    raise self._reader.fail(value_node.value[i], f"sweep.{spec.key} has {value!r} twice")
            swept[spec.key] = tuple(values)
        return swept

    def _fixed(self, node: yaml.Node, swept: Mapping[str, Any]) -> dict[str, Any]:
        fixed = {}
        for spec, key_node, value_node in self._known(node, "fixed"):
            if spec.key in swept:
                raise self._reader.fail(key_node, f"{spec.key} is both in `sweep:` and in `fixed:`")
            fixed[spec.key] = self._value(spec, value_node)
        return fixed

    def _slo(self, node: yaml.Node) -> Slo:
        table = slo_settings()
        limits = {}
        for key, key_node, value_node in self._pairs(node, "slo"):
            if key not in table:
                raise self._reader.fail(key_node, *unknown_key("limit", key, table))
            limits[key] = self._value(table[key], value_node)
        return Slo(**limits)
