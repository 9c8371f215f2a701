"""From a name to a loaded model: what is found, what is refused, and how it says so."""

import json

import pytest

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import ModelConfig
from deepinfer_cli.errors import DeepInferError, ModelError, ResourceError, describe
from deepinfer_cli.models import load
from deepinfer_cli.models.cache import cache_root
from deepinfer_cli.models.loading import FileModel
from deepinfer_cli.models.resolve import resolve_model
from deepinfer_cli.prompts.types import PromptInput
from tests.support.tiny_models import TinyLlama, write_gguf, write_safetensors

MESSAGES = PromptInput(messages=[{"role": "user", "content": "Hi"}])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPINFER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def gguf_path(tmp_path_factory):
    return write_gguf(TinyLlama(), tmp_path_factory.mktemp("gguf") / "tiny.gguf", "Q4_0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_safetensors(TinyLlama(), tmp_path_factory.mktemp("st") / "model", "BF16")


def settings(path, **more):
    return RunConfig(model=ModelConfig(model=str(path), **more))


def test_a_gguf_file_is_ready_without_its_weights(gguf_path):
    model = load(settings(gguf_path))
    assert (model.family, model.max_context, model.name) == ("llama", 1024, str(gguf_path))
    assert model.eos_token_ids and model.renderer.has_template
    assert model.description["format"] == "gguf" and model.description["source"] == "local"
    assert json.loads(json.dumps(model.description)) == model.description
    rendered = model.renderer.render(MESSAGES)
    assert model.tokenizer.decode(rendered.token_ids).count("Hi") == 1


def test_folder_and_gguf_of_one_model_render_the_same_tokens(gguf_path, folder):
    one, two = load(settings(gguf_path)), load(settings(folder))
    assert two.description["format"] == "safetensors" and two.max_context == 1024
    assert one.renderer.render(MESSAGES).token_ids == two.renderer.render(MESSAGES).token_ids
    assert set(one.eos_token_ids) == set(two.eos_token_ids)
    single = next(folder.glob("*.safetensors"))
    assert load(settings(single)).family == "llama"


def test_the_fingerprint_follows_the_weights_not_the_name(gguf_path, tmp_path):
    first = load(settings(gguf_path)).fingerprint
    twin = tmp_path / "renamed.gguf"
    twin.write_bytes(gguf_path.read_bytes())
    assert load(settings(twin)).fingerprint == first
    other = write_gguf(TinyLlama(seed=2), tmp_path / "other.gguf", "Q4_0")
    assert load(settings(other)).fingerprint != first


def test_generation_defaults_come_from_the_folder(folder):
    path = folder / "generation_config.json"
    before = path.read_bytes() if path.exists() else None
    path.write_text(json.dumps({"temperature": 0.6, "top_k": 40, "do_sample": True, "eos_token_id": 1}))
    try:
        assert load(settings(folder)).generation_defaults == {"temperature": 0.6, "top_k": 40}
    finally:
        path.unlink() if before is None else path.write_bytes(before)


def test_a_template_of_ones_own_replaces_the_models(gguf_path, tmp_path):
    file = tmp_path / "mine.jinja"
    file.write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    model = load(settings(gguf_path, chat_template=str(file)))
    assert model.renderer.render(MESSAGES).text == "<Hi>"
    file.write_text("{% for %}")
    with pytest.raises(ModelError, match=r"mine\.jinja: the chat template does not compile: line 1"):
        load(settings(gguf_path, chat_template=str(file)))
    with pytest.raises(ModelError, match="cannot be read"):
        load(settings(gguf_path, chat_template=str(tmp_path / "none")))


def test_a_tokenizer_of_ones_own_replaces_the_models(gguf_path, folder):
    model = load(settings(gguf_path, tokenizer=str(folder)))
    assert model.tokenizer.kind == "tokenizer.json"
    assert load(settings(gguf_path, tokenizer=str(folder / "tokenizer.json"))).tokenizer.encode("a")
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        load(settings(gguf_path, tokenizer=str(gguf_path.parent)))


def test_an_unknown_architecture_is_named_with_what_there_is(folder, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "architectures": ["MambaForCausalLM"]}))
    with pytest.raises(ModelError, match="MambaForCausalLM is not supported") as caught:
        load(settings(copy))
    assert "LlamaForCausalLM" in caught.value.hint and caught.value.exit_code == 2


def test_damaged_files_end_with_one_sentence_and_exit_code_2(gguf_path, tmp_path):
    data = gguf_path.read_bytes()
    for cut in (b"", data[:3], b"GARBAGE!" + data[8:], data[:1000], data[:-100]):
        bad = tmp_path / "bad.gguf"
        bad.write_bytes(cut)
        with pytest.raises(Exception) as caught:
            load(settings(bad))
        told = describe(caught.value)
        assert told.exit_code == 2 and "bad.gguf" in told.message and "\n" not in told.message


def test_too_little_memory_is_told_before_anything_is_packed(gguf_path, monkeypatch):
    model = load(settings(gguf_path))
    monkeypatch.setattr("deepinfer_cli.models.loading.free_memory", lambda: 1 << 20)
    with pytest.raises(ResourceError, match=r"need .* and 1\.0 MB are free") as caught:
        model.make_executor(None)
    assert caught.value.exit_code == 2 and caught.value.hint


# -- names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("./missing.gguf", "no such file", None),
        ("/nowhere/at/all", "no such file", None),
        ("smollm2-135", "unknown model", "did you mean smollm2-135m?"),
        ("gpt", "unknown model", "org/name"),
        ("org/name", "not on this machine", "deepinfer download org/name"),
        ("org/name:file.gguf", "not on this machine", "deepinfer download org/name:file.gguf"),
        ("smollm2-135m", "not on this machine", "deepinfer download smollm2-135m"),
        ("DeepSeek-V4.1-Flash", "not on this machine", "deepinfer download deepseek-v4.1-flash"),
    ],
)
def test_a_model_that_is_not_here_says_what_brings_it(name, said, hint):
    with pytest.raises(ModelError, match=said) as caught:
        resolve_model(name, None, print)
    assert hint is None or hint in caught.value.hint
    assert caught.value.exit_code == 2


def test_a_near_miss_of_a_path_is_suggested(gguf_path):
    with pytest.raises(ModelError) as caught:
        resolve_model(str(gguf_path).replace("tiny", "tinny"), None, print)
    assert caught.value.hint == f"did you mean {gguf_path}?"


def test_folders_that_are_no_models_are_refused(tmp_path, gguf_path):
    with pytest.raises(ModelError, match="neither"):
        resolve_model(str(tmp_path), None, print)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="2 GGUF files"):
        resolve_model(str(tmp_path), None, print)
    assert resolve_model(str(gguf_path.parent), None, print).path == gguf_path
    pickle = tmp_path / "model.bin"
    pickle.write_bytes(b"\x80")
    with pytest.raises(ModelError, match="pickle"):
        resolve_model(str(pickle), None, print)
    with pytest.raises(ModelError, match="no revision"):
        resolve_model(str(gguf_path), "main", print)


def test_without_a_name_the_small_model_stands_in_and_says_so_once(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said = []
    with pytest.raises(DeepInferError, match="smollm2-135m is not on this machine"):
        resolve_model(None, None, said.append)
    assert len(said) == 1 and "no model named" in said[0]


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    assert cache_root() == tmp_path / "cache"
    monkeypatch.delenv("DEEPINFER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg/deepinfer"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache/deepinfer"
    assert not any(tmp_path.iterdir())  # asking creates nothing


def test_the_loaded_model_keeps_its_promises():
    from deepinfer_cli.models.types import LoadedModel

    wanted = {name for name in vars(LoadedModel) if not name.startswith("_")}
    have = set(vars(FileModel)) | {"name", "family", "max_context", "tokenizer", "renderer"}
    assert wanted <= have | {"eos_token_ids", "generation_defaults"}
