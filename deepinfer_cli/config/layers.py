"""Five layers to one RunConfig: command line > environment > profile > file > defaults.

Presence decides, not truthiness: `--stop ''`, `DEEPINFER_SEED=0` and `chat: false` all count. On the
command line flags and `--set key=value` are one level, and the last one wins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from deepinfer_cli.config import environment
from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.config.settings import PROFILES_KEY, aliases, all_settings, suggestion
from deepinfer_cli.config.spec import Setting
from deepinfer_cli.config.values import check_value, read_scalar
from deepinfer_cli.errors import ConfigError, UsageError, in_short

if TYPE_CHECKING:
    from deepinfer_cli.config.yaml_source import YamlSettings


@dataclass(frozen=True, slots=True)
class FlagUse:
    """One option on the command line, in the order of appearance."""

    key: str  # setting, or "set" for --set
    spelling: str  # "--temperature"
    value: str | bool | int  # text of the argument; True or False of a switch; the count of -v


@dataclass(frozen=True, slots=True)
class Resolved:
    config: RunConfig
    notes: tuple[str, ...]  # unusual spellings that were accepted, worth a word to the user


_FLOW: Final = ("[", "{")


def _text_value(spec: Setting, text: str, where: str, notes: list[str]) -> Any:
    """JSON value of the text of `--set` or an environment variable."""
    if spec.nullable and text == "null":
        return None
    if (spec.repeatable or spec.kind == "constraint") and text.startswith(_FLOW):
        from deepinfer_cli.config.yaml_source import parse_value

        value, more = parse_value(spec, text, where)
        notes.extend(more)
        return value
    if spec.repeatable:
        return _repeated(spec, [text], where)
    if spec.kind in ("str", "path"):
        return text
    scalar = read_scalar(spec, text) if text else None
    if scalar is None:
        return text
    if scalar.note:
        notes.append(f"{where}: {scalar.note}")
    return scalar.value


def _repeated(spec: Setting, texts: Sequence[str], where: str) -> Any:
    """JSON value of a repeatable option's arguments."""
    if spec.split_commas:
        texts = [part.strip() for text in texts for part in text.split(",")]
    if spec.kind == "bias":
        pairs = [text.partition("=") for text in texts]
        for token, equals, _ in pairs:
            if not equals:
                raise ConfigError(
                    f"{where} takes TOKEN_ID=BIAS, got {in_short(token)!r}", f"{where} 50256=-100"
                )
        return {token: read_scalar(spec, bias).value for token, _, bias in pairs}
    if spec.kind == "integers":
        return [read_scalar(spec, text).value for text in texts]
    return list(texts)


def _checked(spec: Setting, value: Any, where: str) -> Any:
    try:
        return check_value(spec, value)
    except ValueError as e:
        raise ConfigError(f"{where} {e}") from None


def split_assignment(text: str) -> tuple[Setting, str]:
    """(setting, text of the value) of the argument of --set."""
    written, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set takes KEY=VALUE, got {in_short(text)!r}", "--set temperature=0.2")
    key = aliases().get(written.strip(), written.strip())
    if key not in all_settings():
        raise UsageError(f"--set names an unknown setting {in_short(written)!r}", suggestion(written[:100]))
    return all_settings()[key], value


def cli_layer(uses: Iterable[FlagUse], notes: list[str]) -> dict[str, tuple[Any, Origin]]:
    """key -> (checked value, origin) of the command line."""
    layer: dict[str, tuple[Any, Origin]] = {}
    repeated: dict[str, list[str]] = {}  # arguments of a repeatable option since the last --set of it
    for use in uses:
        if use.key == "set":
            spec, text = split_assignment(str(use.value))
            where = f"--set {spec.key}"
            value = _text_value(spec, text, where, notes)
            repeated.pop(spec.key, None)
        else:
            spec, where = all_settings()[use.key], use.spelling
            value = use.value
            if spec.repeatable:
                repeated.setdefault(spec.key, []).append(str(use.value))
                value = _repeated(spec, repeated[spec.key], where)
            elif spec.kind not in ("str", "path") and isinstance(value, str):
                value = _text_value(spec, value, where, notes)
        layer[spec.key] = (_checked(spec, value, where), Origin("cli", where))
    return layer


def env_layer(environ: Mapping[str, str], notes: list[str]) -> dict[str, tuple[Any, Origin]]:
    """key -> (checked value, origin) of the environment."""
    layer = {}
    for key, (text, variable) in environment.settings_in(environ).items():
        spec = all_settings()[key]
        value = _text_value(spec, text, variable, notes)
        layer[key] = (_checked(spec, value, variable), Origin("env", variable))
    return layer


def _mapping_layer(
    found: YamlSettings, values: Mapping[str, Any], prefix: tuple[str, ...]
) -> dict[str, tuple[Any, Origin]]:
    layer = {}
    for key, value in values.items():
        place = str(found.place((*prefix, key)))
        checked = _checked(all_settings()[key], value, f"{place}: {key}")
        layer[key] = (checked, Origin("profile" if prefix else "file", place))
    return layer


def file_layers(
    path: str | None, profile: str | None, notes: list[str]
) -> list[dict[str, tuple[Any, Origin]]]:
    """Layers of the config file and of the chosen profile in it, weakest first. All profiles are checked."""
    if path is None:
        if profile is not None:
            hint = f"add --config FILE with a `{PROFILES_KEY}:` section"
            raise UsageError(f"the profile {profile!r} needs a config file", hint)
        return []
    from deepinfer_cli.config.json_schema import check_file
    from deepinfer_cli.config.yaml_source import read_settings

    found = read_settings(path)
    check_file(found)
    notes.extend(found.notes)
    layers = [_mapping_layer(found, found.values, ())]
    by_name = {
        name: _mapping_layer(found, values, (PROFILES_KEY, name)) for name, values in found.profiles.items()
    }
    if profile is not None:
        if profile not in by_name:
            names = ", ".join(by_name) or "none"
            raise UsageError(f"{path} has no profile {profile!r}", f"profiles in this file: {names}")
        layers.append(by_name[profile])
    return layers


def resolve(
    uses: Iterable[FlagUse] = (),
    *,
    environ: Mapping[str, str] | None = None,
    config_file: str | None = None,
    profile: str | None = None,
) -> Resolved:
    """The RunConfig that the layers add up to. ConfigError or UsageError names the first thing wrong."""
    notes: list[str] = []
    environ = environ or {}
    if profile is None:
        profile = environ.get(environment.PROFILE_VARIABLE)
    layers = file_layers(config_file, profile, notes)
    layers.append(env_layer(environ, notes))
    layers.append(cli_layer(uses, notes))
    config = RunConfig(profile=profile, config_file=config_file)
    for layer in layers:
        config = _without_weaker_constraint(config, layer)
        for key, (value, origin) in layer.items():
            config = config.with_values({key: value}, origin)
    check_together(config)
    return Resolved(config, tuple(dict.fromkeys(notes)))


_CONSTRAINTS: Final = ("constraint", "json_schema", "regex", "choice", "grammar")


def _without_weaker_constraint(config: RunConfig, layer: Mapping[str, tuple[Any, Origin]]) -> RunConfig:
    """A layer that asks for a constraint takes the place of whatever kind a weaker one asked for."""
    given = [key for key in _CONSTRAINTS if key in layer and layer[key][0] not in (None, ())]
    if len(given) > 1:
        places = ", ".join(f"{key} from {layer[key][1]}" for key in given)
        raise ConfigError(f"{given[0]} and {given[1]} exclude each other: give one constraint", places)
    weaker = [key for key in _CONSTRAINTS if given and config.get(key) not in (None, ()) and key not in layer]
    return (
        config.with_values({key: all_settings()[key].default for key in weaker}, layer[given[0]][1])
        if weaker
        else config
    )


def check_together(config: RunConfig) -> None:
    """Settings that are right each, but not together."""
    sampling, rows, output = config.sampling, config.rows, config.output
    if sampling.max_tokens is not None and sampling.min_tokens > sampling.max_tokens:
        raise _conflict(config, "min_tokens", "max_tokens", "min_tokens may not be above max_tokens")
    if rows.prompt_field is not None and rows.template is not None:
        raise _conflict(config, "prompt_field", "template", "prompt_field and template exclude each other")
    if output.quiet and output.verbose:
        raise _conflict(config, "quiet", "verbose", "quiet and verbose exclude each other")
    files = [
        key for key in ("output", "errors", "run_file", "log_file") if config.get(key) not in (None, "-")
    ]
    for i, key in enumerate(files):
        for other in files[:i]:
            if config.get(key) == config.get(other):
                raise _conflict(config, other, key, f"{other} and {key} are the same file")


def _conflict(config: RunConfig, first: str, second: str, message: str) -> ConfigError:
    places = ", ".join(f"{key} from {config.origin(key)}" for key in (first, second))
    return ConfigError(message, places)


_COMMENT_COLUMN: Final = 29  # behind the longest line of defaults


def print_config(config: RunConfig) -> str:
    """Resolved settings as YAML that can be used as a config file; comments tell where each came from."""
    values = config.as_json()
    lines = [f"# resolved settings{f', profile {config.profile}' if config.profile else ''}"]
    group = ""
    for key, value in values.items():
        spec = all_settings()[key]
        if spec.group != group:
            group = spec.group
            lines += ["", f"# {group}"]
        text = f"{key}: {_yaml_value(spec, value)}"
        where = str(config.origin(key)).replace("\n", "\\n")
        lines.append(f"{text:<{_COMMENT_COLUMN}}  # {where}")
    return "\n".join(lines)


def _yaml_value(spec: Setting, value: Any) -> str:
    """JSON is YAML; floats as YAML 1.1 readers too take them for floats."""
    if spec.kind == "float" and value is not None:
        text = repr(float(value))
        mantissa, e, exponent = text.partition("e")
        return f"{mantissa}{'' if '.' in mantissa else '.0'}e{exponent}" if e else text
    return json.dumps(value, ensure_ascii=False)
