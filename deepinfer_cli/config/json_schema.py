"""The JSON schema of run configs, made from the settings table, and the check of a file against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deepinfer_cli.config import load_jsonschema
from deepinfer_cli.config.settings import PROFILES_KEY, all_settings
from deepinfer_cli.config.spec import Setting
from deepinfer_cli.config.values import FAILURES_PATTERN, SHARD_PATTERN, SIZE_PATTERN, shown, wanted
from deepinfer_cli.config.yaml_source import YamlSettings
from deepinfer_cli.errors import ConfigError

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def _number(spec: Setting, kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": kind}
    if spec.minimum is not None:
        schema["exclusiveMinimum" if spec.exclusive_minimum else "minimum"] = spec.minimum
    if spec.maximum is not None:
        schema["maximum"] = spec.maximum
    return schema


def _list_or_one(item: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [item, {"type": "array", "items": item}]}


def _value_schema(spec: Setting) -> dict[str, Any]:
    match spec.kind:
        case "bool":
            return {"type": "boolean"}
        case "int":
            return _number(spec, "integer")
        case "float":
            return _number(spec, "number")
        case "str":
            return {"type": "string"}
        case "path":
            return {"type": "string", "minLength": 1}
        case "choice":
            return {"enum": list(spec.choices)}
        case "bytes":
            return {"anyOf": [_number(spec, "integer"), {"type": "string", "pattern": SIZE_PATTERN}]}
        case "strings":
            return _list_or_one({"type": "string", "minLength": 1})
        case "integers":
            return _list_or_one(_number(spec, "integer"))
        case "bias":
            return {
                "type": "object",
                "propertyNames": {"pattern": "^[0-9]{1,10}$"},
                "additionalProperties": _number(spec, "number"),
            }
        case "shard":
            return {"type": "string", "pattern": SHARD_PATTERN}
        case "constraint":
            text = {"type": "string", "minLength": 1}
            kinds = {
                "json_schema": {"type": ["object", "boolean"]},
                "regex": text,
                "choice": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                "grammar": text,
                "json_object": {"const": True},
            }
            syntax = _value_schema(all_settings()["grammar_syntax"])
            one = [{"required": [kind]} for kind in kinds]
            known = {**kinds, "grammar_syntax": syntax}
            return {"type": "object", "properties": known, "additionalProperties": False, "oneOf": one}
        case "failures":
            whole = {"type": "integer", "minimum": 0}
            return {"anyOf": [whole, {"type": "string", "pattern": FAILURES_PATTERN}]}


def setting_schema(spec: Setting) -> dict[str, Any]:
    """The schema of one key's value."""
    value = _value_schema(spec)
    if spec.nullable:
        value = {"anyOf": [value, {"type": "null"}]}
    return {"description": spec.help, **value}


def run_config_schema() -> dict[str, Any]:
    """The schema of a whole run config: every setting at the top, and again inside each profile."""
    table = all_settings().values()
    keys: dict[str, Any] = {spec.key: setting_schema(spec) for spec in table}
    keys |= {alias: {"$ref": f"#/$defs/settings/properties/{s.key}"} for s in table for alias in s.aliases}
    settings = {"type": "object", "properties": keys, "additionalProperties": False}
    profiles = {
        "description": "Named sets of settings, chosen with --profile; they win over the file's own.",
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/settings"},
    }
    references: dict[str, Any] = {key: {"$ref": f"#/$defs/settings/properties/{key}"} for key in keys}
    return {
        "$schema": DIALECT,
        "title": "deepinfer run config",
        "type": ["object", "null"],
        "properties": {**references, PROFILES_KEY: profiles},
        "additionalProperties": False,
        "$defs": {"settings": settings},
    }


def check_file(found: YamlSettings) -> None:
    """Check what a file says against the schema; a ConfigError names file, line, column, key and value."""
    jsonschema = load_jsonschema.load()
    document: dict[str, Any] = dict(found.values)
    if found.profiles:
        document[PROFILES_KEY] = {name: dict(values) for name, values in found.profiles.items()}
    validator = jsonschema.Draft202012Validator(run_config_schema())
    paths = [_deepest(error) for error in validator.iter_errors(document)]
    if paths:
        raise _complaint(found, document, min(paths, key=found.place))


def _deepest(error: Any) -> tuple[str | int, ...]:
    """The path of the smallest thing that is wrong: an "anyOf" failed because of something inside it."""
    inner = [_deepest(part) for part in error.context or ()]
    return max([tuple(error.absolute_path), *inner], key=len)


def _complaint(found: YamlSettings, document: Mapping[str, Any], path: tuple[str | int, ...]) -> ConfigError:
    """The error at `path` in the words that every layer uses."""
    key_path = path[:3] if path and path[0] == PROFILES_KEY else path[:1]
    value: Any = document
    for step in key_path:
        value = value[step]
    spec = all_settings().get(str(key_path[-1])) if key_path else None
    if spec is None:
        return ConfigError(f"{found.place(path)}: not a run config")
    return ConfigError(f"{found.place(path)}: {spec.key} must be {wanted(spec)}, got {shown(value)}")
