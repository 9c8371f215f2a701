"""Right answers on the small model: distances to transformers in fp32, side by side with llama.cpp's.

3,200 positions of 50 texts, chosen before any result was seen (tests/support/fixed_texts.py). The reference
is transformers in fp32 on the dequantised weights; llama.cpp runs on the same file, in the same run.
DEEPINFER_RECORD=FILE.json keeps the figures (make bench-quality).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from deepinfer_cli.bench.conditions import machine
from deepinfer_cli.bench.peers.llama_cpp import LlamaCpp
from tests.support.fixed_texts import FixedText, load_texts
from tests.support.native_engine import NativeEngine, Setup, Work
from tests.support.quality import Quality
from tests.support.reference_logits import reference_logits

pytestmark = [pytest.mark.model, pytest.mark.oracle]

NUM_PROMPTS = 10
NUM_GREEDY = 48  # tokens
END_OF_TURN = 2


@pytest.fixture(scope="module")
def record(small_model: Path) -> Iterator[dict]:
    """What the tests of this file measured; written at the end when asked for."""
    figures: dict = {"machine": machine(), "model": small_model.name}
    yield figures
    target = os.environ.get("DEEPINFER_RECORD")
    if target:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def texts() -> list[FixedText]:
    return load_texts()


@pytest.fixture(scope="module")
def reference(small_model: Path, texts: list[FixedText]) -> np.ndarray:
    return reference_logits(small_model, texts)


@pytest.fixture(scope="module")
def llama_cpp(small_model: Path) -> LlamaCpp:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when the library is loaded
    return LlamaCpp(small_model, num_threads=min(4, os.cpu_count() or 1))


@pytest.fixture(scope="module")
def llama_cpp_quality(
    llama_cpp: LlamaCpp, texts: list[FixedText], reference: np.ndarray, record: dict
) -> Quality:
    quality = Quality.empty()
    for index, text in enumerate(texts):
        rows = [values for _, values in llama_cpp.score(text.tokens, text.positions)]
        quality.add(reference[index], np.array(rows, dtype=np.float32))
    print("\n" + quality.line("llama.cpp"))
    record["llama.cpp"] = quality.figures() | {"build": llama_cpp.system_info()}
    return quality


def measure(
    model: Path, setup: Setup, texts: list[FixedText], reference: np.ndarray, record: dict
) -> Quality:
    quality, by_kind = Quality.empty(), {}
    with NativeEngine(model, setup) as engine:
        spans = [(t.tokens[: t.positions[-1] + 1], t.positions[0], t.positions[-1] + 1) for t in texts]
        for index, rows in enumerate(engine.score(spans)):
            text = texts[index]
            chosen = rows[np.array(text.positions) - text.positions[0]]
            quality.add(reference[index], chosen)
            by_kind.setdefault(text.kind, Quality.empty()).add(reference[index], chosen)
    name = f"{setup.precision}, {setup.kv_dtype} cache"
    print("\n" + quality.line(name))
    for kind, part in by_kind.items():
        print("  " + part.line(kind))
    record[name] = quality.figures() | {kind: part.figures() for kind, part in by_kind.items()}
    return quality


def test_fp32_follows_the_reference(small_model, texts, reference, record):
    quality = measure(small_model, Setup(precision="fp32", kv_dtype="f32"), texts, reference, record)
    assert quality.mean_kl <= 1e-5
    assert quality.top1 >= 0.999


def test_fp32_with_the_default_cache(small_model, texts, reference, record):
    quality = measure(small_model, Setup(precision="fp32", kv_dtype="f16"), texts, reference, record)
    assert quality.mean_kl <= 1e-5
    assert quality.top1 >= 0.995


def test_bf16_stays_near_the_reference(small_model, texts, reference, record):
    quality = measure(small_model, Setup(precision="bf16", kv_dtype="f16"), texts, reference, record)
    assert quality.mean_kl <= 3e-4
    assert quality.top1 >= 0.985


def test_precise_stays_near_the_reference(small_model, texts, reference, record):
    quality = measure(small_model, Setup(precision="precise", kv_dtype="f16"), texts, reference, record)
    assert quality.mean_kl <= 5e-4
    assert quality.top1 >= 0.988


def test_fast_is_no_worse_than_llama_cpp(small_model, texts, reference, record, llama_cpp_quality):
    quality = measure(small_model, Setup(precision="fast", kv_dtype="f16"), texts, reference, record)
    assert quality.mean_kl <= 1.05 * llama_cpp_quality.mean_kl
    assert quality.top1 >= llama_cpp_quality.top1 - 0.005


def test_greedy_answers_start_as_llama_cpp_does(small_model, texts, record, llama_cpp):
    """A divergence later on is expected (both round activations to 8 bits, differently) and is printed."""
    chats = [t for t in texts if t.kind == "chat"][:NUM_PROMPTS]
    prompts = [tuple(llama_cpp.tokenize(t.text, parse_special=True)) for t in chats]
    stop = {"stop_token_ids": [END_OF_TURN]}
    works = [Work(p, max_tokens=NUM_GREEDY, temperature=0.0, extra=stop) for p in prompts]
    with NativeEngine(small_model, Setup(precision="fast", kv_dtype="f16")) as engine:
        ours = [c.samples[0].tokens for c in engine.run(works)]
    common = []
    for prompt, tokens in zip(prompts, ours, strict=True):
        theirs = llama_cpp.greedy(prompt, NUM_GREEDY, stop=[END_OF_TURN])
        differing = [a != b for a, b in zip(tokens, theirs, strict=False)]
        common.append(differing.index(True) if True in differing else min(len(tokens), len(theirs)))
    print(f"\ngreedy, {NUM_GREEDY} tokens: mean common prefix {np.mean(common):.1f}, each {common}")
    record["greedy"] = {"num_tokens": NUM_GREEDY, "common_prefix": [int(n) for n in common]}
    assert sum(length >= 1 for length in common) >= 9
