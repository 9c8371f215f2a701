"""Plain help text with options grouped in panels: the same bytes on every terminal, no import of rich."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperOption

OTHER_PANEL = "Other"


class PanelCommand(TyperCommand):
    """A command whose --help lists options under the `rich_help_panel` each was declared with."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if isinstance(param, TyperOption):
                panel = param.rich_help_panel or OTHER_PANEL
            elif isinstance(param, TyperArgument):
                panel, record = "Arguments", (param.display_name_raw, record[1])
            panels.setdefault(panel, []).append(record)
        if OTHER_PANEL in panels:
            panels[OTHER_PANEL] = panels.pop(OTHER_PANEL)  # last, whatever was declared first
        for panel, records in panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)
