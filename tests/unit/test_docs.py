"""The documentation names files; they must exist, and its commands must be ones the program knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])
_PATH = re.compile(r"`((?:deepinfer_cli|native|tests|configs|docs)/[\w./-]+)`")
_LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def test_the_one_row_page_follows_the_row_through_files_that_exist() -> None:
    text = (ROOT / "docs/explanation/one-row.md").read_text()
    paths = _PATH.findall(text)
    assert len(paths) >= 30
    assert len(paths) == len(set(paths)), "a file is named twice: the order would be unclear"
    stages = ["requests/reader.py", "requests/parser.py", "prompts/render.py", "engine/engine_core.cc"]
    stages += ["models/llama/forward.cc", "sampler/sampler.cc", "results/assemble.py", "results/writer.py"]
    positions = [text.index(stage) for stage in stages]
    assert positions == sorted(positions)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_and_link_of_a_page_exists(page: Path) -> None:
    text = page.read_text()
    missing = [path for path in _PATH.findall(text) if not (ROOT / path).exists()]
    missing += [link for link in _LINK.findall(text) if not (page.parent / link).exists()]
    assert not missing
