"""The small model end to end: its file, its tokens, and the example prompts as `make demo` runs them."""

import json
import random
from pathlib import Path

import pytest

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import ModelConfig
from deepinfer_cli.models import load
from deepinfer_cli.models.cache import sha256_of
from deepinfer_cli.models.registry import KNOWN_MODELS, SMALL_MODEL
from deepinfer_cli.prompts.types import PromptInput
from tests.support.cli import deepinfer
from tests.support.small_model import small_model

pytestmark = pytest.mark.model
ROOT = Path(__file__).parents[2]
# "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n",
# the system message that this model's own template puts in front.
SYSTEM_IDS = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407]
SYSTEM_IDS += [19712, 8182, 2, 198]


@pytest.fixture(scope="module")
def model():
    return load(RunConfig(model=ModelConfig(model=str(small_model()))))


def test_the_file_is_the_published_one():
    wheel = KNOWN_MODELS[SMALL_MODEL].wheel
    assert small_model().stat().st_size == wheel.num_bytes
    assert sha256_of(small_model()) == wheel.file_sha256


def test_messages_become_the_published_ids(model):
    rendered = model.renderer.render(PromptInput(messages=[{"role": "user", "content": "Hi"}]))
    assert rendered.token_ids[: len(SYSTEM_IDS)] == SYSTEM_IDS
    assert rendered.token_ids[len(SYSTEM_IDS) :] == [1, 4093, 198, 26843, 2, 198, 1, 520, 9531, 198]
    assert (rendered.num_bos, rendered.warnings) == (1, ())
    assert (list(model.eos_token_ids), model.max_context, model.tokenizer.adds_bos) == ([2, 0], 8192, False)


def test_digits_stand_alone_and_any_text_survives(model):
    tokenizer = model.tokenizer
    assert [tokenizer.token_bytes[i] for i in tokenizer.encode("in 2026")] == [b"in", b" ", *b_each("2026")]
    chance = random.Random(5)
    alphabet = "abc XYZ 0123\n\t.,'\u00e9\u00df\u4e2d\u6587\U0001f525\u200d\u0301<|im_end|>"
    for _ in range(2000):
        text = "".join(chance.choices(alphabet, k=chance.randrange(1, 60)))
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text == tokenizer.backend.decode(ids, skip_special_tokens=False)


def b_each(text):
    return [character.encode() for character in text]


def test_every_example_prompt_gets_its_row():
    examples = ROOT / "configs/examples/prompts.jsonl"
    done = deepinfer("run", str(examples), "--model", str(small_model()))
    assert done.code == 0, done.stderr
    rows = [json.loads(line) for line in done.text.splitlines()]
    assert [row["id"] for row in rows] == [
        json.loads(line)["id"] for line in examples.read_text().splitlines()
    ]
    assert all(row["status"] == "ok" and row["outputs"][0]["text"] for row in rows)
    assert "Madrid" in rows[2]["outputs"][0]["text"]


def test_without_a_model_named_the_small_one_answers_and_says_so_once():
    small_model()
    row = b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}\n'
    done = deepinfer("run", "-", stdin=row)
    assert done.code == 0 and len(done.text.splitlines()) == 1
    assert done.stderr.count("no model named: using smollm2-135m") == 1
