"""YAML files of settings, read as nodes: no constructors run, every key has a line and a column, doubled
keys are refused, and a scalar means what its setting wants (`no` in `stop` is a string, `1e-5` a number).

Not supported, and said so: tags, merge keys (`<<`), several documents in one file. Anchors and aliases are
expanded, within a bound on the number of nodes, so that a nest of aliases cannot use up the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from deepinfer_cli.config.settings import PROFILES_KEY, aliases, all_settings, suggestion
from deepinfer_cli.config.spec import Setting
from deepinfer_cli.config.text_file import read_text_file
from deepinfer_cli.config.values import NULL_WORDS, read_scalar
from deepinfer_cli.errors import ConfigError

MAX_FILE_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_NODES: Final = 50_000  # after aliases are expanded
MAX_CHARS: Final = 2 * MAX_FILE_BYTES  # of all scalars, after aliases are expanded
MAX_KEY_CHARS: Final = 200
_TAG: Final = "tag:yaml.org,2002:"
# Tags of plain data; which of them the resolver guesses for a scalar does not matter here.
_PLAIN = ("null", "bool", "int", "float", "str", "seq", "map", "timestamp", "value", "merge")
_TAGS: Final = frozenset(_TAG + name for name in _PLAIN)

Path_ = tuple[str | int, ...]  # where a value sits in the document: ("profiles", "tiny", "stop", 0)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where in which file something was written; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class YamlSettings:
    """A file's settings as JSON values under canonical keys, and the place of everything in it."""

    file: str
    values: Mapping[str, Any]
    profiles: Mapping[str, Mapping[str, Any]]
    places: Mapping[Path_, Place]
    notes: tuple[str, ...] = ()  # unusual spellings that were accepted

    def place(self, path: Path_) -> Place:
        """The place of the nearest enclosing thing that has one."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(self.file, 1, 1))


@dataclass(slots=True)
class NodeReader:
    """Walks one document's nodes; remembers places and notes."""

    file: str
    places: dict[Path_, Place] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    num_nodes: int = 0
    num_chars: int = 0

    def place(self, node: yaml.Node) -> Place:
        return Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    def fail(self, node: yaml.Node, message: str, hint: str | None = None) -> ConfigError:
        return ConfigError(f"{self.place(node)}: {message}", hint)

    def enter(self, node: yaml.Node, path: Path_) -> None:
        """Count a node against the bounds; aliases arrive here once per use."""
        self.num_nodes += 1
        if self.num_nodes > MAX_NODES:
            raise self.fail(node, f"more than {MAX_NODES:,} values after aliases are expanded")
        if isinstance(node, yaml.ScalarNode):
            self.num_chars += len(node.value)
            if self.num_chars > MAX_CHARS:
                raise self.fail(node, f"more than {MAX_CHARS:,} characters after aliases are expanded")
        if len(path) > MAX_DEPTH:
            raise self.fail(node, f"nested deeper than {MAX_DEPTH} levels")
        if node.tag not in _TAGS:
            tag = node.tag if len(node.tag) <= MAX_KEY_CHARS else node.tag[:MAX_KEY_CHARS] + "..."
            raise self.fail(node, f"the tag {tag} is not supported", "leave tags out")

    def pairs(self, node: yaml.MappingNode, path: Path_) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """(key, key node, value node) of a mapping, with doubled keys and merge keys refused."""
        seen: dict[str, yaml.Node] = {}
        found: list[tuple[str, yaml.Node, yaml.Node]] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.fail(key_node, "a key must be plain text")
            self.enter(key_node, path)
            key = str(key_node.value)
            if len(key) > MAX_KEY_CHARS:
                raise self.fail(
                    key_node, f"a key has {len(key):,} characters, wanted at most {MAX_KEY_CHARS}"
                )
            if key_node.tag == _TAG + "merge":
                raise self.fail(key_node, "merge keys (<<) are not supported", "write the settings out")
            if key in seen:
                first = seen[key].start_mark.line + 1
                raise self.fail(key_node, f"{key!r} appears twice (first in line {first})")
            seen[key] = key_node
            found.append((key, key_node, value_node))
        return found

    # -- values by what the setting wants ---------------------------------------------------------

    def value(self, spec: Setting, node: yaml.Node, path: Path_) -> Any:
        """The JSON value of a setting's node. Types and ranges are checked later, with the same places."""
        self.enter(node, path)
        self.places.setdefault(path, self.place(node))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(spec, item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return {key: self.value(spec, value, (*path, key)) for key, _, value in self.pairs(node, path)}
        assert isinstance(node, yaml.ScalarNode)
        return self.scalar(spec, node)

    def scalar(self, spec: Setting, node: yaml.ScalarNode) -> Any:
        text = str(node.value)
        if node.style is not None:  # quoted or block text is a string, whatever it spells
            return text
        if spec.kind == "strings" and text in NULL_WORDS:
            return None
        scalar = read_scalar(spec, text)
        if scalar.note:
            self.notes.append(f"{self.place(node)}: {spec.key}: {scalar.note}")
        return scalar.value

    def settings(self, node: yaml.Node, path: Path_) -> dict[str, Any]:
        """A mapping from setting names, at the top or inside one profile."""
        if not isinstance(node, yaml.MappingNode):
            raise self.fail(node, "must be a mapping from setting names to values")
        self.enter(node, path)
        table = all_settings()
        values: dict[str, Any] = {}
        for written, key_node, value_node in self.pairs(node, path):
            key = aliases().get(written, written)
            if not path and key == PROFILES_KEY:
                continue
            if key not in table:
                raise self.fail(
                    key_node, f"unknown setting {written!r}", suggestion(written, profiles=not path)
                )
            if key in values:
                raise self.fail(key_node, f"{written!r} and {key!r} are the same setting")
            self.places[(*path, key)] = self.place(key_node)
            values[key] = self.value(table[key], value_node, (*path, key))
        return values

    def profiles(self, root: yaml.MappingNode) -> dict[str, dict[str, Any]]:
        """The `profiles:` section: name -> settings."""
        for key, key_node, node in self.pairs(root, ()):
            if key != PROFILES_KEY:
                continue
            self.places[(PROFILES_KEY,)] = self.place(key_node)
            if not isinstance(node, yaml.MappingNode):
                raise self.fail(node, "profiles must be a mapping from names to settings")
            self.enter(node, (PROFILES_KEY,))
            found = {}
            for name, name_node, settings_node in self.pairs(node, (PROFILES_KEY,)):
                self.places[(PROFILES_KEY, name)] = self.place(name_node)
                found[name] = self.settings(settings_node, (PROFILES_KEY, name))
            return found
        return {}


class _TooBig(Exception):
    def __init__(self, what: str, mark: yaml.Mark) -> None:
        self.what = what
        self.mark = mark


class _BoundedLoader(yaml.SafeLoader):
    """Stops while composing, long before a big or deep document costs much time or stack."""

    depth = 0
    num_composed = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        self.num_composed += 1
        if self.depth > 2 * MAX_DEPTH:
            raise _TooBig(f"nested deeper than {MAX_DEPTH} levels", self.get_mark())
        if self.num_composed > MAX_NODES:
            raise _TooBig(f"more than {MAX_NODES:,} values", self.get_mark())
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def compose(text: str, file: str) -> yaml.Node | None:
    """The node tree of one document; syntax errors become one sentence with their place."""
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_BoundedLoader)
        return node
    except _TooBig as e:
        raise ConfigError(f"{file}:{e.mark.line + 1}:{e.mark.column + 1}: {e.what}") from None
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark is not None else file
        problem = str(e.problem or e.context)
        problem = problem if len(problem) <= MAX_KEY_CHARS else problem[:MAX_KEY_CHARS] + "..."
        raise ConfigError(f"{where}: not valid YAML: {problem}") from None
    except yaml.reader.ReaderError as e:
        line = text.count("\n", 0, e.position) + 1
        raise ConfigError(f"{file}:{line}: not valid YAML: {e.reason}") from None
    except (yaml.YAMLError, ValueError) as e:
        raise ConfigError(f"{file}: not valid YAML: {e}") from None


def parse_settings(text: str, file: str) -> YamlSettings:
    """The settings in a YAML document. An empty document has none."""
    root = compose(text, file)
    reader = NodeReader(file)
    if root is None or (isinstance(root, yaml.ScalarNode) and root.value in NULL_WORDS):
        return YamlSettings(file, {}, {}, {})
    values = reader.settings(root, ())
    assert isinstance(root, yaml.MappingNode)
    profiles = reader.profiles(root)
    return YamlSettings(file, values, profiles, reader.places, tuple(reader.notes))


def read_settings(path: str) -> YamlSettings:
    """The settings in a YAML file of at most MAX_FILE_BYTES."""
    return parse_settings(read_text(path), path)


def read_text(path: str) -> str:
    """The text of a YAML file of at most MAX_FILE_BYTES."""
    return read_text_file(path, "config file", MAX_FILE_BYTES)


def parse_value(spec: Setting, text: str, where: str) -> tuple[Any, list[str]]:
    """(JSON value, notes) of a list or map written in one argument, by the same rules as in a file."""
    reader = NodeReader(where)
    try:
        node = compose(text, where)
        value = None if node is None else reader.value(spec, node, (spec.key,))
    except ConfigError as e:
        raise ConfigError(f"{where}: {e.message.split(': ', 1)[-1]}", e.hint) from None
    return value, reader.notes
