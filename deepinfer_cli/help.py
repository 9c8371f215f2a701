"""Plain help text with options grouped in panels: the same bytes on every terminal, no import of rich."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperOption

OTHER_PANEL = "Other"


class PanelCommand(TyperCommand):
    """A command whose --help lists options under the `rich_help_panel` each was declared with."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = [self.options_metavar] if self.options_metavar else []
        for param in self.get_params(ctx):
            if isinstance(param, TyperArgument):
                name = param.display_name_raw
                pieces.append(
                    (name if param.required else f"[{name}]") + ("..." if param.nargs == -1 else "")
                )
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if isinstance(param, TyperOption):
                panel = param.rich_help_panel or OTHER_PANEL
            elif isinstance(param, TyperArgument):
                panel, record = "Arguments", (param.display_name_raw, param.help or "")
            panels.setdefault(panel, []).append(record)
        own = panels.pop(OTHER_PANEL, [])
        if len(own) > 1:  # more than --help: the command's own options come first
            arguments = panels.pop("Arguments", None)
            panels = {**({"Arguments": arguments} if arguments else {}), "Options": own, **panels}
        elif own:
            panels[OTHER_PANEL] = own
        for panel, records in panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)
