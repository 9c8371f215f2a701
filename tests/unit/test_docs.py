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


def test_every_limit_of_the_security_page_exists() -> None:
    import importlib

    from deepinfer_cli.config.settings import all_settings

    text = (ROOT / "docs/explanation/security.md").read_text()
    constants = re.findall(r"`(deepinfer_cli[\w.]*):(\w+)`", text)
    assert len(constants) >= 30
    for module, name in constants:
        assert hasattr(importlib.import_module(module), name), f"{module}:{name}"
    settings = re.findall(r"setting `(\w+)`", text)
    assert len(settings) >= 6 and not set(settings) - set(all_settings())


@pytest.mark.parametrize(
    ("shown", "place"),
    [
        ("1,048,576", "deepinfer_cli.requests.limits:MAX_VALUES"),
        ("4,194,304", "deepinfer_cli.requests.limits:MAX_PROMPT_IDS"),
        ("16,777,216", "deepinfer_cli.engine.fit:MAX_RESULT_TOKENS"),
        ("4,194,304", "deepinfer_cli.engine.fit:MAX_RESULT_SCORES"),
        ("256 times", "deepinfer_cli.tokenizer.checks:MAX_GROWTH"),
        ("30 s", "deepinfer_cli.models.hub_http:STALL_SECONDS"),
        ("10,000", "deepinfer_cli.models.wheel:MAX_MEMBERS"),
        ("500,000 steps", "deepinfer_cli.prompts.budget:MAX_STEPS"),
    ],
)
def test_the_security_page_shows_the_limits_as_they_are(shown: str, place: str) -> None:
    import importlib

    module, name = place.split(":")
    value = getattr(importlib.import_module(module), name)
    assert int(re.sub(r"\D", "", shown)) == int(value)
    row = next(
        r for r in (ROOT / "docs/explanation/security.md").read_text().split("\n") if f"`{place}`" in r
    )
    assert shown in row
