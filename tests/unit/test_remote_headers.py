"""The readers of remote headers: equal to the native reader on whole files, calm on broken ones."""

import random

import pytest

from deepinfer_cli.models.fit import file_reader
from deepinfer_cli.models.gguf_header import HeaderError, read_gguf_header
from deepinfer_cli.models.headers import open_model_file
from deepinfer_cli.models.safetensors_header import read_safetensors_header
from tests.support.tiny_models import GGUF_FORMATS, TinyLlama, write_gguf, write_safetensors


@pytest.mark.parametrize("fmt", GGUF_FORMATS)
def test_gguf_as_the_native_reader_sees_it(tmp_path, fmt):
    path = write_gguf(TinyLlama(num_layers=1), tmp_path / "m.gguf", fmt)
    header, native = read_gguf_header(file_reader(path)), open_model_file(path)
    ours = sorted((t.name, t.dtype, t.shape, t.num_bytes) for t in header.tensors)
    assert ours == sorted((t.name, t.dtype, t.shape, t.num_bytes) for t in native.tensors)
    assert header.metadata == native.metadata
    assert header.num_header_bytes <= min(t.offset for t in native.tensors)


@pytest.mark.parametrize("first_piece", [8, 100, 1 << 20])
def test_the_size_of_the_first_request_changes_nothing(tmp_path, first_piece):
    path = write_gguf(TinyLlama(num_layers=1), tmp_path / "m.gguf", "F16")
    assert read_gguf_header(file_reader(path), first_piece) == read_gguf_header(file_reader(path))
    folder = write_safetensors(TinyLlama(num_layers=1), tmp_path / "st", "F32")
    read = file_reader(folder / "model.safetensors")
    assert read_safetensors_header(read, first_piece) == read_safetensors_header(read)


def test_safetensors_as_the_native_reader_sees_them(tmp_path):
    folder = write_safetensors(TinyLlama(num_layers=1), tmp_path / "st", "BF16")
    ours = read_safetensors_header(file_reader(folder / "model.safetensors"))
    native = open_model_file(folder).tensors
    assert {(t.name, t.dtype, t.shape, t.num_bytes) for t in ours} == {
        (t.name, t.dtype, t.shape, t.num_bytes) for t in native
    }


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_mutated_headers_end_in_a_header_or_a_header_error(tmp_path, kind):
    model, chance = TinyLlama(num_layers=1), random.Random(9)
    if kind == "gguf":
        data, read = write_gguf(model, tmp_path / "m.gguf", "Q8_0").read_bytes()[:16_000], read_gguf_header
    else:
        folder = write_safetensors(model, tmp_path / "st", "F16")
        data, read = (folder / "model.safetensors").read_bytes()[:6000], read_safetensors_header
    outcomes = {"header": 0, "error": 0}
    for _ in range(1500):
        changed = bytearray(data)
        for _ in range(chance.choice([1, 2, 5])):
            at = chance.randrange(chance.choice([64, 400, len(changed)]))
            changed[at] = chance.choice([0, 255, chance.randrange(256), changed[at] ^ 1])
        if chance.random() < 0.1:
            del changed[chance.randrange(len(changed)) :]
        cut = bytes(changed)
        try:
            read(lambda offset, size, cut=cut: cut[offset : offset + size])
            outcomes["header"] += 1
        except HeaderError as error:
            assert "\n" not in str(error)
            outcomes["error"] += 1
    assert min(outcomes.values()) > 100
