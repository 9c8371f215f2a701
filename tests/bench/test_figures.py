"""Plots, report and saved runs: what is drawn is what was measured, and opens without a network."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.bench.figures import (
    MAX_SERIES,
    Bar,
    Bars,
    Point,
    Scatter,
    Series,
    nice_ticks,
    roofline_figure,
    throughput_figure,
)
from deepinfer_cli.bench.saved import report_html
from deepinfer_cli.bench.svg import bars_svg, scatter_svg
from deepinfer_cli.bench.tables import fitting_fields, short_table, terminal_table
from deepinfer_cli.bench.text_plot import bars_text, scatter_text
from tests.support.runs import deepinfer

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>&\u2028"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    sweep = folder / "sweep.yaml"
    sweep.write_text(
        "sweep: {input_len: [16, 5000], concurrency: [1, 2]}\n"
        "fixed: {output_len: 4, num_prompts: 4, repetitions: 2}\nslo: {ttft_ms: 500}\nprice_per_hour: 1\n"
    )
    done = deepinfer("bench", "--model", "fake:0.0005", "--sweep", sweep, "--save", folder / "run")
    assert done.code == 3, done.stderr
    return folder / "run"


def document_of(run: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run / "cells.json").read_text())
    return document


def with_limits(run: Path) -> dict[str, Any]:
    """The fake model has no weights, so no limits; here are some."""
    document = document_of(run)
    for cell in document["cells"]:
        cell["values"]["roofline"]["share"] = 0.5
        cell["values"]["roofline"]["memory_bound_share"] = 0.25
    return document


def test_ticks_are_round_and_cover_the_range() -> None:
    for low, high in ((0, 1), (0, 0.037), (0, 12345), (3, 3), (0, 7)):
        ticks = nice_ticks(low, high)
        assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 8


def test_the_scatter_has_a_point_for_each_measured_cell(run: Path) -> None:
    figure = throughput_figure(document_of(run))
    assert figure is not None
    assert [(s.name, len(s.points)) for s in figure.series] == [("input_len 16", 2)]
    assert [p.label for p in figure.series[0].points] == ["1", "2"]
    tree = ElementTree.fromstring(scatter_svg(figure))
    texts = {t.text for t in tree.iter(f"{SVG}text")}
    assert {figure.title, figure.x_title, figure.y_title, "input_len 16", "1", "2"} <= texts
    assert len(list(tree.iter(f"{SVG}circle"))) == 3  # two points and the legend
    for circle in tree.iter(f"{SVG}circle"):
        assert 0 <= float(circle.attrib["cx"]) <= 720 and 0 <= float(circle.attrib["cy"]) <= 420


def test_bars_show_the_share_and_what_bounds(run: Path) -> None:
    assert roofline_figure(document_of(run)) is None
    figure = roofline_figure(with_limits(run))
    assert figure is not None and [b.detail for b in figure.bars] == ["50 % of compute"] * 2
    tree = ElementTree.fromstring(bars_svg(figure))
    widths = [float(r.attrib["width"]) for r in tree.iter(f"{SVG}rect") if "rx" in r.attrib]
    assert widths == [pytest.approx((720 - 130 - 230) / 2)] * 2
    assert "####" in bars_text(figure, 100)


def test_many_series_are_cut_and_said() -> None:
    cells = [
        {
            "status": "ok",
            "swept": {"input_len": n},
            "load": {"concurrency": 1, "input_len": n, "output_len": 1},
            "engine": {},
            "statistics": {"low": 1.0, "high": 2.0},
            "values": {
                "steps": {"decode_tokens_per_s_per_user": 1.0 + n},
                "throughput": {"output_tokens_per_s": 1.5},
            },
        }
        for n in range(MAX_SERIES + 3)
    ]
    figure = throughput_figure({"cells": cells})
    assert figure is not None and len(figure.series) == MAX_SERIES and "3 more series" in figure.note
    ElementTree.fromstring(scatter_svg(figure))


def test_names_of_others_cannot_become_markup() -> None:
    point = Point(1.0, 1.0, 0.5, 2.0, HOSTILE)
    for svg in (
        scatter_svg(Scatter(HOSTILE, HOSTILE, HOSTILE, (Series(HOSTILE, (point,)),), HOSTILE)),
        bars_svg(Bars(HOSTILE, HOSTILE, (Bar(HOSTILE, 0.5, HOSTILE),))),
    ):
        assert "<script" not in svg
        ElementTree.fromstring(svg)


def test_the_terminal_plot_shows_each_series(run: Path) -> None:
    figure = throughput_figure(document_of(run))
    assert figure is not None
    for width in (60, 100, 200):
        lines = scatter_text(figure, width).splitlines()
        assert max(map(len, lines)) <= width + 8
        assert sum("o1" in line or "o2" in line for line in lines) >= 1


def test_the_report_is_one_file_without_requests(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert page.count("<svg") == 1 and "default-src 'none'" in page
    assert not re.search(r'(src|href)="', page)
    assert "deepinfer bench --model fake:0.0005 --sweep" in page
    for title in ("Checkpoint and quantisation", "Runtime and file layout", "Basis of comparison"):
        assert title in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))  # type: ignore[union-attr]
    assert [c["status"] for c in data["cells"]] == ["ok", "ok", "failed", "failed"]
    assert page.count('<tr class="failed">') == 2
    assert report_html(with_limits(run)).count("<svg") == 2


def test_a_hostile_model_name_stays_text(run: Path) -> None:
    document = document_of(run)
    document["header"]["checkpoint"]["name"] = HOSTILE
    document["header"]["command"] = HOSTILE
    assert "<script>alert" not in report_html(document)


def test_narrow_terminals_lose_columns_not_cells(run: Path) -> None:
    document = document_of(run)
    everything, _ = fitting_fields(document, 10_000)
    few, left_out = fitting_fields(document, 80)
    assert set(few) | set(left_out) == set(everything) and left_out
    head, rows = short_table(document, few)
    drawn = terminal_table(head, rows, 80, color=False)
    assert max(map(len, drawn.splitlines())) <= 80 and "\x1b" not in drawn
    assert sum("failed:" in line for line in drawn.splitlines()) == 2


# ---- verbs -------------------------------------------------------------------------------------------------


def test_plot_draws_on_the_terminal_and_into_files(run: Path, tmp_path: Path) -> None:
    done = deepinfer("bench", "plot", run)
    assert done.code == 0 and b"Throughput against speed" in done.stdout
    done = deepinfer("bench", "plot", run / "cells.json", "--format", "svg", "--save", tmp_path)
    assert done.stdout.decode().splitlines() == [str(tmp_path / "throughput.svg")]
    ElementTree.parse(tmp_path / "throughput.svg")


def test_plot_as_png(run: Path, tmp_path: Path) -> None:
    done = deepinfer("bench", "plot", run, "--format", "png", "--save", tmp_path)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert done.code == 2 and "deepinfer-cli[bench]" in done.stderr
        return
    assert done.code == 0 and (tmp_path / "throughput.png").read_bytes().startswith(b"\x89PNG")


def test_compare_reads_two_folders(run: Path) -> None:
    done = deepinfer("bench", "compare", run, run)
    assert done.code == 0 and done.stdout.count(b"too few values") == 10
    done = deepinfer("bench", "compare", run, run, "--format", "json")
    assert len(json.loads(done.stdout)["cells"]) == 2


def test_compare_refuses_unlike_runs_unless_forced(run: Path, tmp_path: Path) -> None:
    document = document_of(run)
    document["header"]["checkpoint"]["fingerprint"] = "another"
    other = tmp_path / "cells.json"
    other.write_text(json.dumps(document))
    done = deepinfer("bench", "compare", run, other)
    assert done.code == 2 and done.stdout == b"" and "may not be compared: the weights differ" in done.stderr
    done = deepinfer("bench", "compare", run, other, "--force")
    assert done.code == 0 and "compared by force" in done.stderr and done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("compare", "a"), "compare takes two saved runs"),
        (("compare", "a", "b"), "cannot read"),
        (("plot",), "plot takes one saved run"),
        (("plot", "a", "--format", "csv"), "--format is svg, png"),
        (("kernels", "x"), "kernels takes no arguments"),
        (("kernels", "--model", "fake"), "fake has no weights"),
    ],
)
def test_usage_errors_of_verbs(args: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = deepinfer("bench", *args, cwd=tmp_path)
    assert done.code == 2 and says in done.stderr


def test_files_that_are_no_runs_are_refused(tmp_path: Path) -> None:
    for text, says in (("{}", "is no saved benchmark"), ('{"schema_version": 99}', "is no saved benchmark")):
        (tmp_path / "x.json").write_text(text)
        assert says in deepinfer("bench", "plot", tmp_path / "x.json").stderr
    (tmp_path / "x.json").write_text('{"schema_version": 99, "header": {}, "cells": []}')
    assert "schema version 99" in deepinfer("bench", "plot", tmp_path / "x.json").stderr
