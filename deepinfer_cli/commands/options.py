"""Command-line options made from the settings table, and the reading of them in the order written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperOption

from deepinfer_cli.config.layers import FlagUse
from deepinfer_cli.config.settings import GROUPS, all_settings
from deepinfer_cli.config.spec import Setting
from deepinfer_cli.help import PanelCommand

PANELS: Final = {
    "model": "Model",
    "sampling": "Sampling (a row's own values win)",
    "constraints": "Constraints (a row's own wins)",
    "rows": "Rows and prompts",
    "output": "Output and messages",
    "engine": "Engine (never changes an answer, but for precision, kv-dtype and isa)",
}
CONFIG_PANEL: Final = "Configuration"
_NO_METAVAR = {"int": "N", "float": "X", "bool": None}


def _metavar(spec: Setting) -> str | None:
    if spec.choices:
        return "|".join(spec.choices)
    return spec.metavar or _NO_METAVAR.get(spec.kind, "TEXT")


def _default_text(spec: Setting) -> str:
    """The default as help shows it; nothing where "not set" is all there is to say."""
    if spec.default in (None, (), False, "none"):
        return ""
    if spec.kind == "bool":
        return " [default: on]"
    if spec.kind == "int" and spec.key in ("threads", "verbose", "seed", "top_k", "min_tokens"):
        return ""
    return f" [default: {spec.default}]"


def setting_option(spec: Setting, panel: str | None = None) -> Any:
    """The annotation by which Typer declares this setting's option; values stay text for the layers."""
    details: dict[str, Any] = {
        "help": spec.help + _default_text(spec),
        "rich_help_panel": panel or PANELS[spec.group],
        "show_default": False,
    }
    if spec.kind == "bool":
        names = ["/".join([spec.flags[0], *spec.off_flags]), *spec.flags[1:]]
        return Annotated[bool | None, typer.Option(*names, **details)]
    if spec.choices:
        details["autocompletion"] = lambda: list(spec.choices)
    if spec.key == "verbose":
        return Annotated[int, typer.Option(*spec.flags, count=True, **details)]
    kind: Any = list[str] | None if spec.repeatable else str | None
    return Annotated[kind, typer.Option(*spec.flags, metavar=_metavar(spec), **details)]


def setting_parameters(
    groups: Iterable[str] = tuple(GROUPS),
    *,
    without: Iterable[str] = (),
    helps: Mapping[str, str] = MappingProxyType({}),
) -> list[inspect.Parameter]:
    """Keyword parameters, one per setting that has a flag, in the order of the help panels.

    `without` names settings that the command does not have; `helps` gives others the words that fit it.
    """
    order = {group: i for i, group in enumerate(PANELS)}
    wanted, unwanted = set(groups), set(without)
    chosen = [s for s in all_settings().values() if s.flags and s.group in wanted and s.key not in unwanted]
    chosen = [replace(s, help=helps[s.key], default=None) if s.key in helps else s for s in chosen]
    chosen.sort(key=lambda s: order[s.group])
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(
            s.key, keyword, default=0 if s.key == "verbose" else None, annotation=setting_option(s)
        )
        for s in chosen
    ]


def with_settings(
    function: Callable[..., Any], parameters_of: Callable[[], list[inspect.Parameter]] = setting_parameters
) -> Callable[..., Any]:
    """Give a command function every setting's option (or those of `parameters_of`) after its own parameters.

    Typer sees the options through the signature; the function reads what was used from `flag_uses(ctx)`
    and takes the values as **settings only because a call must accept them.
    """
    signature = inspect.signature(function, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    parameters = [*own, *parameters_of()]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return function


_USES_KEY: Final = "deepinfer.flag_uses"


def flag_uses(ctx: typer.Context) -> list[FlagUse]:
    """The settings' options and --set as they stood on the command line."""
    uses: list[FlagUse] = ctx.meta[_USES_KEY]
    return uses


class SettingsCommand(PanelCommand):
    """Remembers options in the order written, which click's values alone do not tell: the last of
    `--temperature 0 --set temperature=1` has to win.

    The parsed texts are taken as they are. Typer would convert them with pydantic, whose import costs more
    than everything else a start needs, only to hand back the same strings.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        values, _, order = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[_USES_KEY] = list(_uses(values, order))
        if ctx.resilient_parsing or any(param.is_eager for param in order):  # completion, --help
            return super().parse_args(ctx, args)
        for param in self.params:
            given = values.get(param.name)
            ctx.params[param.name] = param.default if given is None else given
        return []


def _uses(values: dict[str, Any], order: list[Any]) -> Iterable[FlagUse]:
    """One FlagUse per occurrence. Of an option that keeps its last value only, the last occurrence counts."""
    table = all_settings()
    last = {param.name: i for i, param in enumerate(order)}
    taken: dict[str, int] = {}
    for i, param in enumerate(order):
        if not isinstance(param, TyperOption) or (param.name not in table and param.name != "set_"):
            continue
        value = values[param.name]
        key = "set" if param.name == "set_" else param.name
        if isinstance(value, list):
            value = value[taken.get(key, 0)]
            taken[key] = taken.get(key, 0) + 1
        elif i != last[param.name]:
            continue
        yield FlagUse(key, _spelling(param, value), value)


def _spelling(param: TyperOption, value: Any) -> str:
    if value is False and param.secondary_opts:
        return param.secondary_opts[0]
    return param.opts[0]
