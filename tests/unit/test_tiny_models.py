"""The generated models and their numpy reference agree before any engine is judged by them."""

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.support import byte_tokenizer, numpy_llama, tiny_models
from tests.support.tiny_models import RopeScaling, TinyLlama

TOKENS = [int(t) for t in np.random.default_rng(0).integers(3, 280, 24)]


def test_gguf_and_safetensors_of_one_model_give_the_same_logits(tmp_path):
    for scaling in (None, RopeScaling("linear"), RopeScaling("llama3")):
        model = TinyLlama(scaling=scaling, tied=scaling is None)
        from_gguf = numpy_llama.read_gguf(tiny_models.cached(model, tmp_path, "gguf", "F32"))
        from_folder = numpy_llama.read_safetensors(
            tiny_models.cached(model, tmp_path, "safetensors", "F32", num_shards=2)
        )
        a = numpy_llama.forward(model, from_gguf, TOKENS)
        b = numpy_llama.forward(model, from_folder, TOKENS)
        assert np.abs(a - b).max() < 1e-10, scaling


@pytest.mark.parametrize("fmt", tiny_models.GGUF_FORMATS)
def test_every_format_makes_a_lively_model(tmp_path, fmt):
    model = TinyLlama()
    path = tiny_models.write_gguf(model, tmp_path / "m.gguf", fmt)
    types = {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}
    assert {types["token_embd.weight"], types["blk.1.ffn_down.weight"]} == {fmt}
    assert types["output_norm.weight"] == "F32"
    logits = numpy_llama.forward(model, numpy_llama.read_gguf(path), TOKENS)
    assert np.isfinite(logits).all()
    assert 0.5 < logits.std() < 10  # neither flat nor one spike: a wrong weight would be seen
    assert np.abs(logits[-1] - logits[-2]).max() > 0.5


def test_files_depend_on_the_seed_only(tmp_path):
    a = tiny_models.write_gguf(TinyLlama(), tmp_path / "a.gguf", "Q5_K").read_bytes()
    b = tiny_models.write_gguf(TinyLlama(), tmp_path / "b.gguf", "Q5_K").read_bytes()
    c = tiny_models.write_gguf(TinyLlama(seed=2), tmp_path / "c.gguf", "Q5_K").read_bytes()
    assert a == b
    assert a != c


def test_bf16_rounding_is_to_nearest_even():
    # 1 + 2^-8 lies halfway between two bfloat16 values and 1 + 3 * 2^-8 does too: even wins both times.
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1.0, 2**-8 * (1 + 2**-9)], np.float32)
    expected = np.array([1.0, 1 + 4 * 2**-8, -1.0, 2**-8], np.float32)
    assert (tiny_models.round_to_bf16(values) == expected).all()


def test_the_tokenizer_spells_any_text(tmp_path):
    byte_tokenizer.write_files(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == byte_tokenizer.VOCAB_SIZE
    for text in ("The theory of the thing", "naïve café 12345", "日本語 🙂\n\t\x00", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert len(tokenizer.encode(" the").ids) == 1
