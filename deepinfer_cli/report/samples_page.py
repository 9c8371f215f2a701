"""report.html of an evaluation: its numbers, and every sample to read, with what was extracted marked."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deepinfer_cli.report.page import page

# Outputs may be a megabyte each. The page holds the start, the end and what lies around the extraction.
_SHOWN_CHARS: Final = 30_000  # of one output, a fifth of them from its start
_PAGE_CHARS: Final = 40_000_000  # of all outputs: a browser opens no page of gigabytes
_LEAST_CHARS: Final = 4_000
_AROUND_CHARS: Final = 2_000
_INVISIBLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def samples_page(
    title: str, lines: Sequence[str], summary: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]
) -> str:
    """The page. `lines` are the summary as text, headline first."""
    stamp = '<span class="stamp">partial</span> ' if summary["partial"] else ""
    judge = summary.get("judge") or {}
    if judge.get("self_judged"):
        stamp += '<span class="stamp">self-judged</span> '
    notes = "\n".join(html.escape(line.removeprefix("  ")) for line in lines[1:])
    body = (
        f'<header><h1>{stamp}{html.escape(title)}</h1>\n<p class="headline">{html.escape(lines[0])}</p>\n'
        f"<details><summary>Numbers and settings</summary><pre>{notes}</pre></details></header>\n"
        '<nav id="filters" aria-label="Filters"></nav>\n<main id="list"></main>\n'
        '<p><button id="more" type="button" hidden>Show more</button></p>'
    )
    limit = max(_LEAST_CHARS, min(_SHOWN_CHARS, _PAGE_CHARS // max(1, len(samples))))
    data = {"samples": [_shown(sample, limit) for sample in samples]}
    return page(title, body, data, style="samples.css", script="samples.js")


def _shown(sample: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """What the page shows of a sample; texts are cut into pieces here, where positions are characters."""
    span = sample.get("span")
    return {
        "key": sample["key"],
        "problem": sample["problem"],
        "category": sample.get("category"),
        "verdict": sample["verdict"],
        "scorer": sample["scorer"],
        "note": sample.get("note"),
        "extracted": sample.get("extracted"),
        "gold": _gold_text(sample),
        "finish": sample.get("finish_reason"),
        "tokens": (sample.get("usage") or {}).get("completion_tokens"),
        "seed": None if sample.get("seed") is None else str(sample["seed"]),
        "messages": [[m.get("role"), _content(m)] for m in sample.get("messages") or ()],
        "reasoning": pieces(sample.get("reasoning") or "", None, limit),
        "output": pieces(sample.get("output") or "", span, limit),
        "error": (sample.get("error") or {}).get("message"),
        "second": sample.get("second"),
        "judge": sample.get("judge"),
    }


def _gold_text(sample: Mapping[str, Any]) -> str:
    import json

    gold = sample.get("gold")
    if gold is None:
        return "whatever obeys the schema"
    return gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return visible(content if isinstance(content, str) else str(content))


def pieces(text: str, span: Sequence[int] | None, limit: int = _SHOWN_CHARS) -> list[list[str]]:
    """[kind, text] of kind "text", "mark" or "gap": a short text whole, of a long one what matters."""
    n = len(text)
    keep = [(0, n)]
    if n > limit:
        head = limit // 5
        keep = [(0, head), (n - limit + head, n)]
        if span is not None:
            keep.append((max(0, span[0] - _AROUND_CHARS), min(n, span[1] + _AROUND_CHARS)))
        keep = _joined(keep)
    shown: list[list[str]] = []
    position = 0
    for start, end in keep:
        if start > position:
            shown.append(["gap", f"{start - position:,} characters left out"])
        shown += _marked(text, start, end, span)
        position = end
    return shown


def visible(text: str) -> str:
    """Characters that reorder, hide or overprint text become their code: what is read is what is there."""
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _marked(text: str, start: int, end: int, span: Sequence[int] | None) -> list[list[str]]:
    if span is None or span[1] <= start or span[0] >= end:
        return [["text", visible(text[start:end])]] if end > start else []
    low, high = max(start, span[0]), min(end, span[1])
    parts = [["text", text[start:low]], ["mark", text[low:high]], ["text", text[high:end]]]
    return [[kind, visible(part)] for kind, part in parts if part]
