"""The page: strangers' text cannot break it, extractions are marked, long outputs are cut without loss."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

from deepinfer_cli.report.page import embed
from deepinfer_cli.report.samples_page import pieces, samples_page


def sample(**changes: Any) -> dict[str, Any]:
    text = "So \\boxed{70}."
    return {
        "key": "1#0",
        "problem": "1",
        "verdict": "correct",
        "scorer": "integer",
        "extracted": "70",
        "span": [3, 13],
        "gold": 70,
        "output": text,
        "messages": [{"role": "user", "content": "?"}],
        "usage": {"completion_tokens": 5},
        **changes,
    }


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.scripts: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)


def parse(page: str) -> Elements:
    found = Elements()
    found.feed(page)
    found.close()
    return found


def page_of(*samples: dict[str, Any], **summary: Any) -> str:
    return samples_page("A title", ["headline", "  a line"], {"partial": False, **summary}, samples)


def test_hostile_text_stays_text() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!--\u2028"
    plain, hostile = (
        page_of(sample()),
        page_of(sample(output=evil, messages=[{"role": "user", "content": evil}])),
    )
    assert parse(hostile).tags == parse(plain).tags
    data = json.loads(parse(hostile).scripts[0])
    assert data["samples"][0]["messages"] == [["user", evil]]
    assert embed("\ud800") == '"?"'
    titled = samples_page("<b>&", ["<i>headline"], {"partial": False}, [])
    assert "<b>" not in titled and "<i>" not in titled


def test_the_page_asks_nobody_for_anything() -> None:
    page = page_of(sample())
    assert not re.search(r"""(src|href)\s*=|url\(|@import|fetch\(|https?://""", page)
    assert "default-src 'none'" in page
    assert "innerHTML" not in page


def test_the_extraction_is_marked_by_characters_not_by_utf16_units() -> None:
    text = "\U0001f600 so \\boxed{70}!"
    start = text.index("\\")
    assert pieces(text, [start, start + 10]) == [
        ["text", "\U0001f600 so "],
        ["mark", "\\boxed{70}"],
        ["text", "!"],
    ]
    assert pieces("", None) == []
    assert pieces("abc", None) == [["text", "abc"]]


def test_characters_that_reorder_or_hide_are_shown_as_codes() -> None:
    assert pieces("a\u202eb\x07c\td\n", [1, 3]) == [
        ["text", "a"],
        ["mark", "\\u202eb"],
        ["text", "\\u0007c\td\n"],
    ]
    (shown,) = json.loads(
        parse(page_of(sample(messages=[{"role": "user", "content": "\u2066x"}]))).scripts[0]
    )["samples"]
    assert shown["messages"] == [["user", "\\u2066x"]]


def test_long_outputs_keep_start_end_and_what_was_extracted() -> None:
    text = "S" + "a" * 500_000 + "\\boxed{7}" + "b" * 500_000 + "E"
    start = text.index("\\")
    shown = pieces(text, [start, start + 9])
    kinds = [kind for kind, _ in shown]
    assert kinds == ["text", "gap", "text", "mark", "text", "gap", "text"]
    assert shown[0][1].startswith("S") and shown[-1][1].endswith("E")
    assert shown[3] == ["mark", "\\boxed{7}"]
    left_out = sum(int(re.sub(r"\D", "", t)) for k, t in shown if k == "gap")
    assert left_out + sum(len(t) for k, t in shown if k != "gap") == len(text)


def test_stamps() -> None:
    assert 'class="stamp">partial' in page_of(sample(), partial=True)
    assert 'class="stamp">self-judged' in page_of(sample(), judge={"self_judged": True})
    assert 'class="stamp"' not in page_of(sample())
