"""Other devices: found by their device files, refused with everything that a build for them would need."""

import pytest

from deepinfer_cli import accelerators
from deepinfer_cli.commands import build
from deepinfer_cli.console import Console
from deepinfer_cli.errors import DeepInferError, UsageError


def test_devices_are_told_from_their_files(tmp_path):
    assert accelerators.detected(tmp_path) == []
    (tmp_path / "nvidia0").touch()
    assert accelerators.detected(tmp_path) == ["nvidia"]
    (tmp_path / "davinci_manager").touch()
    assert accelerators.detected(tmp_path) == ["nvidia", "ascend"]


@pytest.mark.parametrize(
    ("found", "enough"), [(None, False), ("12.8", False), ("13.0", True), ("13", True), ("14.1", True)]
)
def test_a_version_is_enough_from_the_wanted_one_on(monkeypatch, found, enough):
    monkeypatch.setattr(accelerators, "_cuda_version", lambda: found)
    cuda = accelerators.prerequisites("nvidia")[0]
    assert (cuda.enough, cuda.found) == (enough, found)
    assert str(cuda) == f"CUDA 13 ({'not found' if found is None else 'found ' + found})"


@pytest.mark.parametrize(
    ("found", "enough"), [("9.1.0", False), ("9.2", True), ("9.2.RC1", True), ("10.0", True)]
)
def test_the_cann_toolkit_counts_by_its_first_two_numbers(monkeypatch, found, enough):
    monkeypatch.setattr(accelerators, "_cann_version", lambda: found)
    assert accelerators.prerequisites("ascend")[0].enough == enough


def test_versions_are_read_from_what_tools_and_files_say(monkeypatch, tmp_path):
    monkeypatch.setattr(
        accelerators, "_output", lambda *command: "Cuda compilation tools, release 13.0, V13.0.88\n"
    )
    assert accelerators._cuda_version() == "13.0"
    monkeypatch.setattr(accelerators, "_output", lambda *command: "13.2.0\n")
    assert accelerators._gcc_version() == "13.2.0"
    monkeypatch.setenv("CXX", "clang++")
    assert accelerators._gcc_version() is None
    (tmp_path / "version.cfg").write_text("runtime_running_version=[9.2.0.1:9.2.RC1]\n")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert accelerators._cann_version() == "9.2.0.1"
    assert accelerators._output("no-such-tool-here") in ("", "13.2.0\n")


def test_the_refusal_says_when_all_of_it_is_here(monkeypatch):
    monkeypatch.setattr(accelerators, "_cuda_version", lambda: "13.1")
    monkeypatch.setattr(accelerators, "_nvidia_driver", lambda: "590.1")
    monkeypatch.setattr(accelerators, "_gcc_version", lambda: "14.0")
    with pytest.raises(UsageError, match=r"no nvidia engine; .*; all of it is here"):
        build._check_accelerator("nvidia", Console())


def test_without_sources_the_command_that_brings_them_is_named():
    with pytest.raises(UsageError, match="installed without its sources") as caught:
        build._build(None, Console())
    assert caught.value.hint.startswith("pip install") and "--no-binary" in caught.value.hint


def test_a_failed_build_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(build.subprocess, "run", lambda *a, **k: type("Done", (), {"returncode": 3})())
    with pytest.raises(DeepInferError, match="the build failed with exit code 3"):
        build._build(tmp_path, Console())


def test_a_failing_kernel_fails_the_self_test(monkeypatch, capsys):
    from deepinfer_cli import machine

    bad = machine.KernelCheck("gemm", "avx2", False, "row 3 differs")
    monkeypatch.setattr(machine, "kernel_checks", lambda: [bad])
    assert build._self_test(Console()) == 1
    assert "gemm at level avx2: row 3 differs" in capsys.readouterr().err
