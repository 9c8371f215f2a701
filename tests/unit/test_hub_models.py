"""Downloads against a hub of our own that breaks, lies and refuses in every way we could think of."""

import json
import resource
import socket

import pytest

from deepinfer_cli.errors import DeepInferError, ModelError, ResourceError
from deepinfer_cli.models import download, hub, hub_http
from deepinfer_cli.models.hub_http import HubRefusal, HubUnreachable
from deepinfer_cli.models.resolve import resolve_model
from deepinfer_cli.models.wheel import DownloadError
from tests.support.hub_server import COMMIT, Hub, serving
from tests.support.tiny_models import TinyLlama, write_gguf, write_safetensors

BIG = bytes(range(256)) * 12_000  # 3 MB: several pieces


@pytest.fixture
def served(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPINFER_CACHE", str(tmp_path / "cache"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hub_http.time, "sleep", lambda seconds: None)
    files = {
        "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
        "tokenizer.json": b"{}",
        "model.safetensors": BIG,
        "README.md": b"# not needed",
        "pytorch_model.bin": b"pickle, never fetched",
        "modeling_custom.py": b"code, never fetched",
    }
    with serving(Hub(files)) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def get(name="org/model", said=None, **options):
    said = [] if said is None else said
    plan = download.make_plan(name, say=said.append, **options)
    return download.fetch(plan, say=said.append, advance=lambda count: None).path


def tree(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_model_arrives_whole_without_code_or_pickles(served, tmp_path):
    path = get()
    assert path == tmp_path / "cache/models/hub/org--model" / COMMIT
    assert tree(path) == [".complete.json", "config.json", "model.safetensors", "tokenizer.json"]
    assert (path / "model.safetensors").read_bytes() == BIG
    assert (path.parent / "refs/main").read_text().strip() == COMMIT


def test_a_hit_writes_nothing_and_a_pinned_one_asks_nobody(served):
    path = get()
    state = {p: p.stat().st_mtime_ns for p in path.parent.rglob("*")}
    served.requests.clear()
    assert get() == path
    assert served.num_bytes_asked() == []  # the listing alone
    served.requests.clear()
    assert get(revision=COMMIT) == path
    assert served.requests == []
    assert {p: p.stat().st_mtime_ns for p in path.parent.rglob("*")} == state


def test_offline_opens_no_socket(served, monkeypatch):
    path = get()

    def forbidden(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", forbidden)
    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    assert get(offline=True) == path
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert get() == path
    with pytest.raises(ModelError, match=r"other is not in the cache: missing .*org--other") as caught:
        get("org/other", revision="v2")
    assert caught.value.hint.endswith("deepinfer download org/other --revision v2")


@pytest.mark.parametrize("drops", [1, 3])
def test_a_broken_transfer_resumes_where_it_broke(served, drops):
    del served.files["config.json"], served.files["tokenizer.json"]
    served.drops, said = drops, []
    assert (get(said=said) / "model.safetensors").read_bytes() == BIG
    starts = [int(given[6:-1]) for given in served.num_bytes_asked() if given]
    assert len(starts) == drops and starts == sorted(set(starts)) and starts[0] > 0
    assert any("broke at" in line for line in said)


def test_a_killed_download_resumes_in_the_next_process(served):
    served.drops = 100  # until the attempts are used up with nothing new arriving
    served.drop_share = 0.0
    del served.files["config.json"], served.files["tokenizer.json"]
    with pytest.raises(HubUnreachable):
        get()
    served.drop_share, served.drops = 0.6, 100
    name = hub.parse_hub_name("org/model")
    target = name.folder / COMMIT / "model.safetensors"
    listing = hub_http.list_files("org/model", "main")
    partial = target.with_name(f".{target.name}.{listing.find(target.name).key}.part")
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.write_bytes(BIG[:1_000_000])
    served.requests.clear()
    served.drops, said = 0, []
    assert (get(said=said) / "model.safetensors").read_bytes() == BIG
    assert served.num_bytes_asked() == ["bytes=1000000-"]
    assert any("resuming at 1,000,000 of" in line for line in said)
    assert not partial.exists()


def test_a_partial_file_with_other_bytes_costs_one_more_transfer(served):
    name, listing = hub.parse_hub_name("org/model"), hub_http.list_files("org/model", "main")
    target = name.folder / COMMIT / "model.safetensors"
    target.parent.mkdir(parents=True)
    target.with_name(f".{target.name}.{listing.find(target.name).key}.part").write_bytes(b"x" * 1000)
    said = []
    assert (get(said=said) / "model.safetensors").read_bytes() == BIG
    assert any("wrong checksum; fetching it again" in line for line in said)


def test_a_server_without_ranges_makes_the_file_start_over(served):
    served.ignores_ranges, served.drops = True, 1
    assert (get() / "model.safetensors").read_bytes() == BIG


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_wrong_bytes_of_the_right_size_are_fetched_again_and_then_refused(served, name):
    served.files = {name: served.files[name], "model.safetensors": BIG}
    served.wrong_bytes = 1
    path = get()
    assert (path / name).read_bytes() == served.files[name]
    for file in path.iterdir():
        file.unlink()
    served.wrong_bytes = 4
    with pytest.raises(DownloadError, match="arrived twice with the wrong bytes") as caught:
        get()
    assert caught.value.exit_code == 1
    assert not (path / name).exists()


def test_redirects_are_followed_and_the_token_is_sent(served, monkeypatch):
    served.redirects = True
    assert (get() / "model.safetensors").read_bytes() == BIG
    served.token = "secret"
    with pytest.raises(HubRefusal, match="no org/model on the hub, or it is private") as caught:
        get()
    assert "HF_TOKEN" in caught.value.hint
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert get()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"status": 401}, "private|token"),
        ({"status": 403}, "refuses access"),
        ({"status": 404}, "404"),
        ({"gated": True}, "is gated"),
        ({"revisions": ()}, "no revision main"),
    ],
)
def test_a_refusal_is_never_hidden_by_the_cache(served, fault, said):
    get()
    for key, value in fault.items():
        setattr(served, key, value)
    with pytest.raises(HubRefusal, match=said) as caught:
        get()
    assert caught.value.exit_code == 1 and "\n" not in caught.value.message
    assert get(offline=True)  # the cache itself is untouched


@pytest.mark.parametrize("down", ["status", "closed"])
def test_a_network_that_is_down_lets_the_cache_stand_in_and_says_so(served, monkeypatch, down):
    path, said = get(), []
    if down == "status":
        served.status = 503
    else:
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert get(said=said) == path
    assert any("using the cached revision" in line for line in said)
    with pytest.raises(HubUnreachable):
        get("org/other")


def test_a_file_that_vanished_from_the_hub_is_named(served):
    served.unlisted = ("model.safetensors",)
    with pytest.raises(HubRefusal, match="not there any more"):
        get()


@pytest.mark.parametrize("name", ["../evil.safetensors", "/evil.safetensors", "a//b.gguf", "a\\..\\b.gguf"])
def test_a_listing_with_unsafe_names_is_refused(served, name, tmp_path):
    served.files[name] = b"x"
    with pytest.raises(HubRefusal, match="unsafe file name"):
        get()
    assert not (tmp_path / "cache/models/hub").exists()


def test_a_moved_branch_brings_the_new_commit_beside_the_old(served):
    old = get()
    served.commit = "f" * 40
    served.files["config.json"] = b'{"architectures": ["Other"]}'
    new = get()
    assert new.name == "f" * 40 and old.exists()
    assert get(offline=True) == new


def test_repositories_that_do_not_say_which_file_are_refused_with_the_choice(served):
    served.files = {"a.Q4_0.gguf": b"1", "b.Q8_0.gguf": b"2"}
    with pytest.raises(HubRefusal, match="2 GGUF files") as caught:
        get()
    assert "org/model:FILE" in caught.value.hint and "a.Q4_0.gguf" in caught.value.hint
    assert get("org/model:b.Q8_0.gguf").read_bytes() == b"2"
    with pytest.raises(HubRefusal, match="has no file c"):
        get("org/model:c.gguf")
    served.files = {"pytorch_model.bin": b"x"}
    with pytest.raises(HubRefusal, match="neither safetensors nor GGUF"):
        get()


def test_a_full_disk_is_told_before_the_first_byte(served, monkeypatch):
    monkeypatch.setattr(download, "free_disk", lambda folder: 1000)
    plan = download.make_plan("org/model", say=print)
    with pytest.raises(DeepInferError, match=r"needs 3\.1 MB of disk"):
        download.check_room(plan)


def test_a_disk_that_fills_up_is_named_and_not_retried(served):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(ResourceError, match=r"cannot write .*model\.safetensors") as caught:
            get()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "DEEPINFER_CACHE" in caught.value.hint
    assert served.num_bytes_asked().count("") == 3  # one transfer of each file
    assert (get() / "model.safetensors").read_bytes() == BIG  # and the next one goes on


# -- looking at the headers first -------------------------------------------------------------------


def judged(name="org/model"):
    return download.with_fit(download.make_plan(name, say=print)).fit


def test_headers_of_a_gguf_are_read_by_range_only(served, tmp_path):
    model = TinyLlama(num_layers=2)
    path = write_gguf(model, tmp_path / "tiny.gguf", "Q4_K")
    served.files = {"tiny.gguf": path.read_bytes()}
    fit = judged()
    assert fit.can_run and fit.family == "llama" and fit.format == "gguf"
    assert "Q4_K" in fit.tensor_types and fit.max_context == 1024
    assert fit.kv_bytes_per_token == 2 * 2 * 2 * model.num_kv_heads * model.head_dim
    assert fit.disk_needed == path.stat().st_size
    assert all(given.startswith("bytes=") for given in served.num_bytes_asked())


def test_headers_of_safetensors_shards_are_added_up(served, tmp_path):
    folder = write_safetensors(TinyLlama(num_layers=2), tmp_path / "st", "BF16", num_shards=2)
    served.files = {p.name: p.read_bytes() for p in folder.iterdir()}
    fit = judged()
    assert fit.can_run, fit.obstacles
    assert fit.architecture == "LlamaForCausalLM" and set(fit.tensor_types) == {"BF16"}
    assert fit.weight_bytes == 2 * fit.num_parameters


@pytest.mark.parametrize(
    ("metadata", "tensor_type", "engram", "said"),
    [
        ({}, "IQ2_XXS", "none", "tensor type IQ2_XXS"),
        ({"general.architecture": "mamba"}, "F32", "none", "architecture mamba"),
        ({"split.count": 3}, "F32", "none", "split into 3 GGUF files"),
        ({"general.architecture": "deepseek41"}, "F32", "in a separate file", "Engram tables"),
    ],
)
def test_a_package_that_cannot_run_is_told_before_it_is_fetched(
    served, monkeypatch, metadata, tensor_type, engram, said
):
    served.files = {"x.gguf": gguf_bytes(metadata, tensor_type)}
    fit = judged()
    assert not fit.can_run and any(said in reason for reason in fit.obstacles)
    assert fit.engram == engram
    plan = download.make_plan("org/model", say=print)
    assert download.checked(plan) is plan  # small: not worth a look
    monkeypatch.setattr(download, "JUDGED_BYTES", 10)
    with pytest.raises(ModelError, match="would not run here") as caught:
        download.checked(plan)
    assert "--anyway" in caught.value.hint and caught.value.exit_code == 2


def flagship(with_engram):
    """A published package in small: nested config, FP8 weights with scales, Engram tables or none."""
    tensors = {
        "layers.0.attn.wq_a.weight": ("F8_E4M3", [32, 32]),
        "layers.0.attn.wq_a.scale": ("F8_E8M0", [1, 1]),
    }
    if with_engram:
        tensors["layers.1.engram.embed.weight"] = ("F8_E4M3", [64, 32])
    header, offset = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = shape[0] * shape[1]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    config = {"architectures": ["DeepseekV41ForCausalLM"], "text_config": {"engram_layer_ids": [1, 14]}}
    return {
        "config.json": json.dumps(config).encode(),
        "model-00001-of-00001.safetensors": len(text).to_bytes(8, "little") + text + bytes(offset),
    }


@pytest.mark.parametrize(("with_engram", "where"), [(True, "inside"), (False, "in a separate file")])
def test_the_flagships_package_says_where_its_engram_tables_are(served, with_engram, where):
    served.files = flagship(with_engram)
    fit = judged()
    assert fit.engram == where and fit.architecture == "DeepseekV41ForCausalLM"
    assert any("DeepseekV41ForCausalLM is not supported" in reason for reason in fit.obstacles)
    assert any("separate file" in reason for reason in fit.obstacles) == (not with_engram)
    assert set(fit.tensor_types) == {"F8_E4M3", "F8_E8M0"}


def test_too_little_memory_is_a_shortage(served, tmp_path, monkeypatch):
    from deepinfer_cli.models import fit

    served.files = {"tiny.gguf": write_gguf(TinyLlama(), tmp_path / "t.gguf", "F32").read_bytes()}
    monkeypatch.setattr(fit, "free_memory", lambda: 1000)
    assert any("memory" in reason for reason in judged().shortages)


@pytest.mark.parametrize("data", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 16, b"nonsense" * 9])
def test_a_broken_remote_header_is_one_sentence(served, data):
    served.files = {"x.gguf": data}
    with pytest.raises(ModelError, match="a remote header cannot be read") as caught:
        judged()
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        b"\x10\0\0\0\0\0\0\0{bad",
        b"\x02\0\0\0\0\0\0\0[]",
        b'\x0e\0\0\0\0\0\0\0{"a": {"x": 1}}',
    ],
)
def test_a_broken_safetensors_header_is_one_sentence(served, data):
    served.files = {"model.safetensors": data, "config.json": b"{}"}
    with pytest.raises(ModelError, match="a remote header cannot be read"):
        judged()


def gguf_bytes(metadata, tensor_type):
    """A header with one tensor of a type, through the reference writer."""
    import struct

    from deepinfer_cli.models.gguf_header import TENSOR_TYPES
    from tests.support.tiny_tokenizer import gguf_metadata

    number = next(n for n, (name, _, _) in TENSOR_TYPES.items() if name == tensor_type)
    keys = {"general.architecture": "llama", **gguf_metadata(), **metadata}

    def string(text):
        return struct.pack("<Q", len(text.encode())) + text.encode()

    def value(item):
        if isinstance(item, bool):
            return struct.pack("<I?", 7, item)
        if isinstance(item, int):
            return struct.pack("<Ii", 5, item)
        if isinstance(item, str):
            return struct.pack("<I", 8) + string(item)
        kind = 8 if isinstance(item[0], str) else 5
        packed = b"".join(string(x) if kind == 8 else struct.pack("<i", x) for x in item)
        return struct.pack("<IIQ", 9, kind, len(item)) + packed

    body = b"".join(string(key) + value(item) for key, item in keys.items())
    tensor = string("w") + struct.pack("<IQQIQ", 2, 256, 1, number, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + body + tensor + bytes(4096)


def test_a_plan_is_plain_json_also_when_the_files_are_here(served):
    served.files = {"x.gguf": gguf_bytes({}, "Q2_K")}
    for _ in range(2):
        plan = download.with_fit(download.make_plan("org/model", say=print))
        assert json.loads(json.dumps(plan.as_json()))["fit"]["can_run"] is False
        download.fetch(plan, say=print, advance=lambda count: None)


def test_a_known_name_comes_from_the_hub_where_asked_and_is_found_again(served):
    served.repo = "HuggingFaceTB/SmolLM2-135M-Instruct"
    path = get("smollm2-135m", source="hub")
    assert path.parent.name == "HuggingFaceTB--SmolLM2-135M-Instruct"
    served.requests.clear()
    assert get("SmolLM2-135M", offline=True) == path
    found = resolve_model("smollm2-135m", None, print)
    assert (found.path, found.source, found.revision) == (path, "hub", COMMIT)
    assert served.requests == []
