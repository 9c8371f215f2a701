"""Model files against the reference writers of both formats; what is wrong with a file, in one sentence."""

import json
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from deepinfer_cli import _native

BLOCK_TYPES = {
    name: getattr(gguf.GGMLQuantizationType, name)
    for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
}


def write_gguf(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 10000.5)
    writer.add_bool("flag", True)
    writer.add_int8("small", -3)
    writer.add_uint64("big", 2**64 - 1)
    writer.add_string("name", "tïny")
    writer.add_array("tokenizer.ggml.tokens", ["a", "", "Ġb"])
    writer.add_array("scores", [0.5, -1.0])
    writer.add_array("ints", [1, -2, 3])
    arrays = {
        "plain.f32": rng.standard_normal((3, 4), dtype=np.float32),
        "plain.f16": rng.standard_normal((2, 3, 5)).astype(np.float16),
        "plain.i32": np.arange(6, dtype=np.int32),
    }
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    for name, kind in BLOCK_TYPES.items():
        elems, size = gguf.GGML_QUANT_SIZES[kind]
        data = rng.integers(0, 256, (4, 2 * size), dtype=np.uint8)
        writer.add_tensor(f"block.{name}", data, raw_dtype=kind)
        arrays[f"block.{name}"] = data
        assert elems in (32, 256)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return arrays


def tensor_bytes(file: _native.TensorFile, name: str) -> bytes:
    (found,) = [t for t in file.tensors if t[0] == name]
    _, _, _, size, index, offset = found
    with Path(file.files[index]).open("rb") as f:
        f.seek(offset)
        return f.read(size)


def test_gguf_reads_what_the_reference_writer_wrote(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    arrays = write_gguf(path)
    file = _native.open_tensor_file(path)
    assert (file.format, file.files) == ("gguf", [str(path)])
    meta = file.metadata
    assert meta["general.architecture"] == "llama"
    assert meta["llama.block_count"] == 2
    assert meta["llama.rope.freq_base"] == pytest.approx(10000.5)
    assert meta["flag"] is True
    assert (meta["small"], meta["big"], meta["name"]) == (-3, 2**64 - 1, "tïny")
    assert meta["tokenizer.ggml.tokens"] == ["a", "", "Ġb"]
    assert (meta["scores"], meta["ints"]) == ([0.5, -1.0], [1, -2, 3])
    shapes = {name: (dtype, shape) for name, dtype, shape, *_ in file.tensors}
    assert list(shapes) == sorted(arrays)
    assert shapes["plain.f32"] == ("F32", (3, 4))
    assert shapes["plain.f16"] == ("F16", (2, 3, 5))
    assert shapes["plain.i32"] == ("I32", (6,))
    assert shapes["block.Q4_1"] == ("Q4_1", (4, 64))
    assert shapes["block.Q6_K"] == ("Q6_K", (4, 512))
    for name, array in arrays.items():
        assert tensor_bytes(file, name) == array.tobytes(), name


def gguf_header(tensors: list[tuple[str, list[int], int, int]], kvs: bytes = b"", num_kvs: int = 0) -> bytes:
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), num_kvs) + kvs
    for name, dims, kind, offset in tensors:
        raw = name.encode()
        out += struct.pack("<Q", len(raw)) + raw + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        out += struct.pack("<IQ", kind, offset)
    return out + bytes(-len(out) % 32)


def kv(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


F32, IQ2_XXS = 0, 16
ALIGNMENT = "general.alignment"
BAD_GGUF = {
    "magic": (b"GGML" + bytes(60), "expected a GGUF file"),
    "truncated header": (b"GGUF\x03\x00\x00\x00\x01", "the file ends at byte 9"),
    "version": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1, wanted 2 or 3"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "absurd tensor count": (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0), "9223372036854775808 tensors"),
    "absurd entry count": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "1099511627776 metadata entries"),
    "name past the end": (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 2**62) + bytes(64), "tensor 0 needs"),
    "shape overflow": (gguf_header([("w", [2**62, 2**62], F32, 0)]), '"w" of shape'),
    "dimension 2^63": (gguf_header([("w", [2**63], F32, 0)]), "a dimension of 9223372036854775808"),
    "dimension zero": (gguf_header([("w", [0], F32, 0)]), "a dimension of 0"),
    "five dimensions": (gguf_header([("w", [1] * 5, F32, 0)]), "5 dimensions"),
    "past the end": (gguf_header([("w", [64], F32, 0)]) + bytes(255), "only 255 bytes of data"),
    "offset past the end": (gguf_header([("w", [8], F32, 2**63)]) + bytes(32), "offset 9223372036854775808"),
    "unaligned": (gguf_header([("w", [8], F32, 4)]) + bytes(64), "wanted a multiple of 32"),
    "overlap": (
        gguf_header([("a", [16], F32, 0), ("b", [8], F32, 32)]) + bytes(64),
        'tensor "b" begins at byte 128, inside tensor "a"',
    ),
    "twice": (gguf_header([("a", [8], F32, 0), ("a", [8], F32, 32)]) + bytes(64), 'the name "a"'),
    "ragged blocks": (gguf_header([("w", [33], 2, 0)]) + bytes(64), "wanted a multiple of 32 for Q4_0"),
    "unsupported type": (gguf_header([("w", [256], IQ2_XXS, 0)]) + bytes(99), "IQ2_XXS, supported are F32"),
    "unknown type": (gguf_header([("w", [256], 999, 0)]) + bytes(99), "type 999"),
    "alignment": (
        gguf_header([], kv(ALIGNMENT, 4, struct.pack("<I", 48)), 1),
        "is 48, wanted a power of two",
    ),
    "alignment zero": (gguf_header([], kv(ALIGNMENT, 4, bytes(4)), 1), "is 0, wanted a power of two"),
    "alignment type": (gguf_header([], kv(ALIGNMENT, 6, bytes(4)), 1), "not an unsigned integer"),
    "entry twice": (gguf_header([], kv("k", 7, b"\1") * 2, 2), '"k" is there twice'),
    "truth value": (gguf_header([], kv("k", 7, b"\2"), 1), "truth value 2"),
    "value type": (gguf_header([], kv("k", 13, b"\2"), 1), "value type 13"),
    "array of arrays": (gguf_header([], kv("k", 9, struct.pack("<IQ", 9, 1)), 1), "array of arrays"),
    "array length": (gguf_header([], kv("k", 9, struct.pack("<IQ", 8, 2**24)), 1), "134217728 bytes"),
    "absurd array": (gguf_header([], kv("k", 9, struct.pack("<IQ", 0, 2**62)), 1), "4611686018427387904"),
    "parts": (gguf_header([], kv("split.count", 2, struct.pack("<H", 3)), 1), "one of 3 parts"),
    "control characters": (gguf_header([("a\x1b[2J\n", [0], F32, 0)]), r'"a\x1b[2J\x0a"'),
}


def message_of(path: Path) -> str:
    with pytest.raises(_native.NativeError) as caught:
        _native.open_tensor_file(path)
    message, code = caught.value.args
    assert code in ("bad_file", "unsupported")
    assert "\n" not in message and str(path) in message
    return str(message)


@pytest.mark.parametrize("case", BAD_GGUF)
def test_bad_gguf_is_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    data, wanted = BAD_GGUF[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    assert wanted in message_of(path)


def test_every_truncation_of_a_gguf_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.gguf"
    write_gguf(whole)
    data = whole.read_bytes()
    path = tmp_path / "cut.gguf"
    for size in [*range(0, 1200, 7), *range(1200, len(data), 501)]:
        path.write_bytes(data[:size])
        message_of(path)


def test_what_is_not_a_model_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"")
    assert "empty" in message_of(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "Git LFS pointer" in message_of(path)
    assert "No such file" in message_of(tmp_path / "absent.gguf")
    assert "no config.json" in message_of(tmp_path)


def safetensors(header: object, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


BAD_SAFETENSORS = {
    "header length": (struct.pack("<Q", 2**39) + b"{}", "the header says it has 549755813888 bytes"),
    "not JSON": (safetensors(b"{,}"), "at byte 9"),
    "equal keys": (safetensors(b'{"a":{},"a":{}}'), "appears twice"),
    "depth": (safetensors(b'{"a":' + b"[" * 5000), "nested deeper than 8"),
    "entry": (safetensors({"w": 3}), '"w" is a number, wanted an object'),
    "unknown key": (safetensors({"w": entry("F32", [1], 0, 4) | {"x": 1}}, bytes(4)), 'unknown key "x"'),
    "type": (safetensors({"w": entry("F4", [1], 0, 4)}, bytes(4)), 'stored as "F4", supported are F64'),
    "no shape": (safetensors({"w": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4)), 'no "shape"'),
    "dimension": (safetensors({"w": entry("F32", [-1], 0, 4)}, bytes(4)), "not a whole number"),
    "overflow": (safetensors({"w": entry("F32", [2**62, 2**62], 0, 4)}, bytes(4)), "63 bits"),
    "past the end": (safetensors({"w": entry("F32", [2], 0, 8)}, bytes(4)), "only 4 bytes of data"),
    "descending": (safetensors({"w": entry("F32", [1], 4, 0)}, bytes(4)), "two ascending"),
    "wrong size": (safetensors({"w": entry("F32", [3], 0, 8)}, bytes(8)), "has 8 bytes, wanted 12"),
    "gap": (safetensors({"w": entry("F32", [1], 4, 8)}, bytes(8)), "where the data before it ends"),
    "tail": (safetensors({"w": entry("F32", [1], 0, 4)}, bytes(8)), "the tensors end at byte"),
    "overlap": (
        safetensors({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, bytes(12)),
        'inside tensor "a"',
    ),
    "unaligned": (
        safetensors({"a": entry("U8", [1], 0, 1), "b": entry("F32", [1], 1, 5)}, bytes(5)),
        "wanted a multiple of 4",
    ),
    "metadata": (safetensors({"__metadata__": {"a": 1}}), "wanted a string"),
}


@pytest.mark.parametrize("case", BAD_SAFETENSORS)
def test_bad_safetensors_are_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    data, wanted = BAD_SAFETENSORS[case]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    assert wanted in message_of(path)


def model_folder(folder: Path) -> None:
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 8,
                "rms_norm_eps": 1e-5,
                "rope_scaling": {"factor": 8.0, "type": "llama3"},
                "eos_token_id": [1, 2],
                "absent": None,
                "mixed": [1, "two", {"three": 3}],
                "fractions": [1, 2.5],
            }
        )
    )
    save_file(
        {"a": np.zeros((2, 3), np.float32)}, folder / "model-00001-of-00002.safetensors", {"format": "pt"}
    )
    save_file({"b": np.ones(4, np.float16)}, folder / "model-00002-of-00002.safetensors")


def write_index(folder: Path, weight_map: dict[str, str]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_safetensors_folder(tmp_path: Path) -> None:
    model_folder(tmp_path)
    for with_index in (False, True):
        if with_index:
            write_index(
                tmp_path,
                {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
            )
        file = _native.open_tensor_file(str(tmp_path))
        assert file.format == "safetensors"
        assert [Path(f).name for f in file.files] == [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
        assert [t[:4] for t in file.tensors] == [("a", "F32", (2, 3), 24), ("b", "F16", (4,), 8)]
        assert tensor_bytes(file, "b") == np.ones(4, np.float16).tobytes()
        assert file.metadata == {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 8,
            "rms_norm_eps": 1e-5,
            "rope_scaling.factor": 8.0,
            "rope_scaling.type": "llama3",
            "eos_token_id": [1, 2],
            "mixed.0": 1,
            "mixed.1": "two",
            "mixed.2.three": 3,
            "fractions": [1.0, 2.5],
            "__metadata__.format": "pt",
        }


def test_a_single_model_file_is_preferred(tmp_path: Path) -> None:
    model_folder(tmp_path)
    save_file({"c": np.zeros(2, np.float32)}, tmp_path / "model.safetensors")
    assert [t[0] for t in _native.open_tensor_file(tmp_path).tensors] == ["c"]
    assert _native.open_tensor_file(tmp_path / "model.safetensors").metadata == {}


BAD_INDEX = {
    "missing shard": ({"a": "model-00009.safetensors"}, "model-00009.safetensors: No such file"),
    "parent": ({"a": "../evil.safetensors"}, 'mapped to "../evil.safetensors"'),
    "absolute": ({"a": "/etc/x.safetensors"}, "wanted the name of a .safetensors file in this folder"),
    "nul": ({"a": "x\0.safetensors"}, r'"x\x00.safetensors"'),
    "other suffix": ({"a": "config.json"}, "wanted the name of a .safetensors file"),
    "not there": ({"zz": "model-00001-of-00002.safetensors"}, "but is in no file"),
    "wrong shard": (
        {"a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors"},
        "but is in ",
    ),
    "empty": ({}, 'no "weight_map"'),
}


@pytest.mark.parametrize("case", BAD_INDEX)
def test_a_bad_index_is_refused(case: str, tmp_path: Path) -> None:
    weight_map, wanted = BAD_INDEX[case]
    model_folder(tmp_path)
    write_index(tmp_path, weight_map)
    assert wanted in message_of(tmp_path)


def test_a_bad_config_is_refused(tmp_path: Path) -> None:
    model_folder(tmp_path)
    (tmp_path / "config.json").write_text('{"a": {"b": 1}, "a.b": 2}')
    assert 'two values have the path "a.b"' in message_of(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert "holds an array, wanted an object" in message_of(tmp_path)
    (tmp_path / "config.json").write_text('{"a": NaN}')
    assert "NaN is not JSON" in message_of(tmp_path)


def test_one_tensor_in_two_files(tmp_path: Path) -> None:
    model_folder(tmp_path)
    save_file({"a": np.zeros(2, np.float32)}, tmp_path / "model-00002-of-00002.safetensors")
    assert "two tensors have the name" in message_of(tmp_path)
