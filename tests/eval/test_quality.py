"""Perplexity and divergence: windows, sums and comparisons on the fake model and on written-out numbers."""

from __future__ import annotations

import io
import json
import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepinfer_cli import _native
from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.console import Console
from deepinfer_cli.errors import InputError, UsageError
from deepinfer_cli.eval import verbs
from deepinfer_cli.eval.quality import measure
from deepinfer_cli.eval.quality.command import table
from deepinfer_cli.eval.quality.windows import DOMAINS, Text, built_in_texts, cut, read_texts
from deepinfer_cli.models.fake import FakeModel, FakeTokenizer


class WithBos(FakeTokenizer):
    bos_token_id = 258
    adds_bos = True


def test_windows_cover_every_token_once() -> None:
    text = Text("t", "abcdefghij")
    windows = cut([text], FakeTokenizer(), 4)
    assert [bytes(w.token_ids) for w in windows] == [b"abcd", b"efgh", b"ij"]
    assert [w.num_characters for w in windows] == [3, 3, 1]
    with_bos = cut([text], WithBos(), 4)
    assert [w.token_ids[0] for w in with_bos] == [258] * 4
    assert b"".join(bytes(w.token_ids[1:]) for w in with_bos) == b"abcdefghij"
    assert sum(w.num_characters for w in with_bos) == 10
    with pytest.raises(InputError, match="too few tokens"):
        cut([Text("t", "a")], FakeTokenizer(), 4)


def test_the_built_in_texts_are_of_four_kinds_and_long_enough() -> None:
    texts = built_in_texts()
    assert tuple(t.domain for t in texts) == DOMAINS
    assert all(len(t.text) > 1200 for t in texts[:3])
    assert len({ord(c) // 0x100 for c in texts[3].text}) > 5


def test_files_that_cannot_be_scored_are_named(tmp_path: Path) -> None:
    for name, data, words in (("a", b"\xff", "not UTF-8 at byte 0"), ("b", b" \n", "is empty")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=words):
            read_texts([str(tmp_path / name)])
    with pytest.raises(InputError, match="cannot read"):
        read_texts([str(tmp_path / "c")])


def test_likelihood_sums() -> None:
    part = measure.Likelihood()
    part.add([math.log(0.5), math.log(0.25)], 3)
    assert part.perplexity == pytest.approx(math.sqrt(8))
    assert part.bits_per_character == pytest.approx(1.0)


def row(values: Any) -> memoryview:
    return memoryview(array("f", values))


def test_native_divergence_equals_numpy() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        base, other = rng.normal(size=(2, 500)).astype(np.float32) * 5
        p, q = (
            np.exp(x - x.max()).astype(np.float64)
            for x in (base.astype(np.float64), other.astype(np.float64))
        )
        p, q = p / p.sum(), q / q.sum()
        kl, top, other_top = _native.logit_divergence(row(base), row(other))
        assert kl == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-9)
        assert (top, other_top) == (int(base.argmax()), int(other.argmax()))
    with pytest.raises(_native.NativeError, match="differ in length"):
        _native.logit_divergence(row([1, 2]), row([1, 2, 3]))


def engines(first: RunConfig, second: RunConfig) -> Any:
    return measure.engine_on(FakeModel(), first), measure.engine_on(FakeModel(), second)


def test_both_paths_see_the_same_logits() -> None:
    """The log-probabilities of prompt_logprobs are those of the rows that on_logits gets."""
    windows = cut([Text("t", "The quick brown fox jumps over the lazy dog. " * 8)], FakeTokenizer(), 100)
    config = RunConfig()
    with measure.engine_on(FakeModel(), config) as engine:
        found = measure.likelihoods(engine, windows)["t"]
        total = 0.0
        for window in windows:
            rows: dict[int, memoryview] = {}
            measure._score(engine, window.token_ids, range(1, len(window.token_ids)), rows)
            for position, logits in rows.items():
                values = np.array(logits, dtype=np.float64)
                total += values[window.token_ids[position]] - np.log(np.exp(values).sum())
        assert found.num_tokens == sum(len(w.token_ids) - 1 for w in windows)
        assert found.log_probability == pytest.approx(total, rel=1e-6)


def test_a_model_does_not_diverge_from_itself_and_every_place_is_seen() -> None:
    windows = cut([Text("a", "x" * 150), Text("b", "yz" * 40)], FakeTokenizer(), 128)
    first, second = engines(RunConfig(), RunConfig())
    with first as base, second as other:
        found = measure.divergences(base, other, windows)
    assert {name: len(part.kls) for name, part in found.items()} == {"a": 127 + 21, "b": 79}
    assert all(kl == 0 for part in found.values() for kl in part.kls)
    assert all(part.as_json()["top1_agreement"] == 1 for part in found.values())


def test_divergence_numbers() -> None:
    part = measure.Divergence([0.0, 0.1, 0.2, 0.7], 3).as_json()
    assert part["kl_mean"] == pytest.approx(0.25)
    assert part["kl_median"] == pytest.approx(0.15)
    assert part["kl_max"] == 0.7
    assert part["top1_agreement"] == 0.75


def run(*words: str, **values: Any) -> tuple[list[str], str]:
    said = io.StringIO()
    console = Console(stderr=said)
    printed: list[str] = []
    console.print_data = printed.append  # type: ignore[method-assign]
    own = {k: values.pop(k) for k in list(values) if k in verbs.Options.__slots__}
    config = RunConfig().with_values({"model": "fake", **values}, Origin("cli", "test"))
    assert verbs.dispatch(["ppl", *words], config, verbs.Options(**own), console) == 0
    return "\n".join(printed).splitlines(), said.getvalue()


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("some words " * 30)
    out = tmp_path / "ppl.json"
    lines, said = run(str(mine), output=str(out), beside="fp32,fast", reference="fake", window=64)
    result = json.loads(out.read_text())
    assert list(result["perplexity"]) == ["precise", "fp32", "fast"]
    assert list(result["perplexity"]["precise"]) == [str(mine)]
    assert result["reference"]["divergence"][str(mine)]["kl_max"] == 0
    assert lines == table(result)
    assert "in 6 windows of at most 64 tokens, no BOS" in said
    with pytest.raises(UsageError, match="exists"):
        run(str(mine), output=str(out))


def test_built_in_texts_have_a_total() -> None:
    lines, _ = run()
    assert [line.split("  ")[0] for line in lines[1:]] == [*DOMAINS, "all texts"]


def test_wrong_precisions_are_refused() -> None:
    for flags in ({"beside": "fp8"}, {"reference_precision": "fp8", "reference": "fake"}):
        with pytest.raises(UsageError, match="no precision 'fp8'"):
            run(**flags)


def test_another_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(FakeTokenizer):
        def encode(self, text: str, parse_special: bool = False) -> list[int]:
            return super().encode(text)[::-1]

    from deepinfer_cli.engine import batch_run

    def load(config: RunConfig, console: Console) -> FakeModel:
        model = FakeModel()
        if config.model.model == "other":
            model.tokenizer = Other()
        return model

    monkeypatch.setattr(batch_run, "load_model", load)
    with pytest.raises(InputError, match="have different tokenizers"):
        run(reference="other")
