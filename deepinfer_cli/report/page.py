"""One self-contained HTML file: style sheet, script, and data that nobody's text can break."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Any


def asset(name: str) -> str:
    """A file of this package's assets folder."""
    return (files("deepinfer_cli.report") / "assets" / name).read_text(encoding="utf-8")


def embed(value: Any) -> str:
    """`value` as JSON inside a script element: no `<` survives, so nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.encode("utf-8", "replace").decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def page(title: str, body: str, data: Any, *, style: str, script: str) -> str:
    """A document whose script finds `data` in the element `data`. The policy forbids every request."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{asset(style)}</style></head>\n<body>\n{body}\n"
        f'<script type="application/json" id="data">{embed(data)}</script>\n'
        f"<script>\n{asset(script)}</script>\n</body></html>\n"
    )
