"""Model files that lie: each is refused in one sentence, at once, and nothing in them is ever run."""

from __future__ import annotations

import json
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepinfer_cli.config.layers import resolve
from deepinfer_cli.errors import DeepInferError, describe
from deepinfer_cli.models.loading import FileModel, load_model
from deepinfer_cli.models.resolve import resolve_model
from tests.support import byte_tokenizer
from tests.support.gguf_parts import Parts, packed, take_apart
from tests.support.tiny_models import TinyLlama, write_gguf, write_safetensors

SMALL = TinyLlama(num_layers=1)


def load(path: Path) -> FileModel:
    config = resolve([], environ={}, config_file=None, profile=None).config
    return load_model(replace(config, model=replace(config.model, model=str(path))), lambda text: None)


def executor(path: Path) -> Any:
    from deepinfer_cli import _native

    return load(path).make_executor(_native.ThreadPool(1))


def refused(path: Path) -> DeepInferError:
    with pytest.raises(BaseException) as caught:  # native errors too; describe() tells
        executor(path)
    failure = describe(caught.value)
    assert failure.exit_code == 2, failure.message
    assert "\n" not in failure.message and len(failure.message) < 1000
    return failure


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return take_apart(write_gguf(SMALL, tmp_path_factory.mktemp("gguf") / "m.gguf", "Q8_0"))


def changed(index: int, **changes: Any) -> Callable[[Parts], Parts]:
    def change(p: Parts) -> Parts:
        tensors = list(p.tensors)
        tensors[index] = replace(tensors[index], **changes)
        return replace(p, tensors=tuple(tensors))

    return change


def meta(key: str, value: Any) -> Callable[[Parts], Parts]:
    return lambda p: p.with_metadata(**{key.replace(".", "__"): value})


NESTED = struct.pack("<IIQIQ", 9, 9, 1, 9, 1)
LIES: dict[str, tuple[Callable[[Parts], Parts], str]] = {
    "counts": (lambda p: replace(p, counts=(2**64 - 1, 2**64 - 1)), "tensors, more than"),
    "many keys": (lambda p: replace(p, counts=(1, 10**5)), "metadata"),
    "twice the same key": (lambda p: replace(p, extra=[(b"general.name", packed("x"))]), "is there twice"),
    "a string past the end": (meta("general.name", struct.pack("<IQ", 8, 2**63)), "bytes at byte"),
    "an array past the end": (meta("x", struct.pack("<IIQ", 9, 4, 10**7)), "bytes at byte"),
    "arrays in arrays": (meta("x", NESTED), "array of arrays"),
    "no such type": (meta("x", struct.pack("<IQ", 77, 0)), "value type 77"),
    "zero heads": (meta("llama.attention.head_count", 0), "head_count"),
    "heads that do not divide": (meta("llama.attention.head_count_kv", 3), "not a multiple of 3"),
    "odd head size": (meta("llama.attention.key_length", 63), "different sizes|63"),
    "no layers": (meta("llama.block_count", 0), "block_count"),
    "layers that are not there": (meta("llama.block_count", 10_000), "no tensor"),
    "giant width": (meta("llama.embedding_length", 2**40), "embedding_length"),
    "giant context": (meta("llama.context_length", 2**40), "context_length"),
    "epsilon": (meta("llama.attention.layer_norm_rms_epsilon", float("nan")), "finite"),
    "text for a number": (meta("llama.block_count", "x" * 10_000), "block_count"),
    "number for a text": (meta("general.architecture", 7), "architecture 7"),
    "long name": (meta("general.architecture", "x" * 100_000), r"architecture x+\.\.\."),
    "vocabulary": (meta("tokenizer.ggml.tokens", ["a"] * 10), "token_type|tokens"),
    "token ids": (meta("tokenizer.ggml.eos_token_id", 10**6), "eos_token_id"),
    "overflowing shape": (changed(1, dims=(2**32, 2**32)), "bytes"),
    "zero dimension": (changed(1, dims=(0, 5)), "dimension of 0"),
    "offset past the end": (changed(1, offset=2**63), "bytes of data"),
    "offset around the end": (changed(1, offset=2**64 - 32), "bytes of data"),
    "overlap": (changed(1, offset=0), "inside tensor"),
    "no such tensor type": (changed(1, kind=99), "99"),
    "a name twice": (lambda p: replace(p, tensors=(*p.tensors, p.tensors[0])), "inside tensor"),
    "a template that does not compile": (
        meta("tokenizer.chat_template", "{% for a in [1] %}" * 25),
        "template",
    ),
}


@pytest.mark.parametrize(("lie", "said"), LIES.values(), ids=LIES.keys())
def test_a_gguf_file_that_lies_is_refused(
    lie: Callable[[Parts], Parts], said: str, parts: Parts, tmp_path: Path
) -> None:
    import re

    failure = refused(lie(parts).write(tmp_path / "m.gguf"))
    assert re.search(said, failure.message), failure.message


def test_a_context_of_a_billion_tokens_takes_no_memory_by_its_word(parts: Parts, tmp_path: Path) -> None:
    path = parts.with_metadata(llama__context_length=1 << 30).write(tmp_path / "m.gguf")
    before = _private_bytes()
    assert load(path).max_context == 1 << 30
    assert executor(path) is not None
    assert _private_bytes() - before < 200 << 20


def _private_bytes() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def test_ids_that_only_the_model_has_can_be_scored(tmp_path: Path) -> None:
    """The embedding has more rows than the tokenizer has entries; rows of output still have a spelling."""
    folder = write_safetensors(
        replace(SMALL, vocab_size=byte_tokenizer.VOCAB_SIZE + 64), tmp_path / "m", "F32"
    )
    model = load(folder)
    assert model.tokenizer.vocab_size == byte_tokenizer.VOCAB_SIZE + 64
    assert model.tokenizer.token_bytes[-1] == b"" and model.tokenizer.special[-1]
    assert len(model.tokenizer.special) == len(model.tokenizer.token_bytes)


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(Path("evil").absolute()), "w"))


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "MODEL.PTH", "x.ckpt", "weights", "model.gguf"]
)
def test_pickles_are_refused_by_name_and_by_content(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.write_bytes(pickle.dumps(_Evil()))
    failure = refused(path)
    assert "pickle files are never loaded" in failure.message and "safetensors" in (failure.hint or "")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(_Evil()))
    assert "pickle files are never loaded" in refused(path).message
    assert not (tmp_path / "evil").exists()


def test_a_folder_of_pickles_is_told_by_name(tmp_path: Path) -> None:
    folder = write_safetensors(SMALL, tmp_path / "m", "F32")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(DeepInferError, match=r"weights in pytorch_model\.bin, and pickle files are never"):
        resolve_model(str(folder), None, print)


def test_code_of_a_model_folder_is_never_run(tmp_path: Path) -> None:
    folder = write_safetensors(SMALL, tmp_path / "m", "F32")
    mark = tmp_path / "ran"
    for name in (
        "modeling_evil.py",
        "tokenization_evil.py",
        "configuration_evil.py",
        "__init__.py",
        "sitecustomize.py",
    ):
        (folder / name).write_text(f"open({str(mark)!r}, 'w')\n")
    auto_map = {
        "AutoModelForCausalLM": "modeling_evil.Evil",
        "AutoTokenizer": ["tokenization_evil.Evil", None],
    }
    for name in ("config.json", "tokenizer_config.json"):
        document = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**document, "auto_map": auto_map, "trust_remote_code": True}))
    modules = set(sys.modules)
    assert executor(folder) is not None
    assert not mark.exists()
    assert not [name for name in set(sys.modules) - modules if "evil" in name]


@pytest.mark.parametrize(
    ("shard", "said"),
    [("../outside.safetensors", "in this folder"), ("/etc/passwd", "in this folder"), (5, "file name")],
)
def test_an_index_cannot_lead_out_of_its_folder(shard: Any, said: str, tmp_path: Path) -> None:
    folder = write_safetensors(SMALL, tmp_path / "m", "F32", num_shards=2)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][next(iter(index["weight_map"]))] = shard
    path.write_text(json.dumps(index))
    assert said in refused(folder).message
