"""The process: exit codes, one sentence and a hint, both streams apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepinfer_cli import __main__ as entry
from deepinfer_cli import __version__
from deepinfer_cli.errors import DeepInferError, describe, from_native
from tests.support.cli import clean_environ, deepinfer

MESSAGES = [
    (["rum"], "no such command 'rum'", "did you mean `deepinfer run`?"),
    (["zzzz"], "no such command 'zzzz'", "`deepinfer --help` lists what there is"),
    (["run", "--temprature", "1"], "no such option: --temprature", "did you mean --temperature?"),
    (["run", "--temperature"], "option '--temperature' requires an argument", "`deepinfer run --help` lists"),
    (["run", "--temperature", "hot", "x"], '--temperature must be a number in [0, 100], got "hot"', None),
    (
        ["run", "--set", "temprature=1", "x"],
        "--set names an unknown setting 'temprature'",
        "did you mean `temp",
    ),
    (["run"], "no rows given", "deepinfer run prompts.jsonl"),
    (["run", "x", "--show-tokens"], "--show-tokens goes with --dry-run", "add --dry-run"),
    (
        ["run", "x", "--dry-run", "--validate"],
        "--dry-run and --validate exclude each other",
        "--dry-run also",
    ),
    (["run", "x", "-q", "-v"], "quiet and verbose exclude each other", "quiet from cli --quiet"),
    (["run", "x", "-c", "none.yaml"], "cannot read the config file none.yaml: No such file or", None),
    (
        ["run", "x", "--accelerator", "nvidia"],
        "accelerator nvidia cannot run rows",
        "it was set by cli --acc",
    ),
    (
        ["completion", "csh"],
        "invalid value for 'SHELL': 'csh' is not one of 'bash', 'zsh', 'fish'",
        "`deepinfer completion --help`",
    ),
    (["--json"], "invalid value for --json: goes with --version", "`deepinfer --help` lists"),
]


@pytest.mark.parametrize(("args", "message", "hint"), MESSAGES, ids=[" ".join(a) for a, _, _ in MESSAGES])
def test_usage_messages(args: list[str], message: str, hint: str | None) -> None:
    ran = deepinfer(*args)
    assert ran.code == 2
    assert ran.stdout == b""
    lines = ran.stderr.splitlines()
    assert lines[0].startswith(f"error: {message}")
    assert len(lines) == (1 if hint is None else 2)
    assert hint is None or lines[1].startswith(f"  hint: {hint}")


def test_bad_key_in_a_config_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: some-local-model\ntemperatur: 0.2\nmax_tokens: 8\n")
    ran = deepinfer("run", "--config", str(path), "x.jsonl")
    assert ran.code == 2
    assert ran.stdout == b""
    assert (
        ran.stderr
        == f"error: {path}:2:1: unknown setting 'temperatur'\n  hint: did you mean `temperature`?\n"
    )


def test_print_config_is_data(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("seed: 0123\nlog_file: x.log\n")
    ran = deepinfer(
        "run", "-c", str(path), "--set", "n=2", "--print-config", env={"DEEPINFER_TOPP": "1"}, cwd=tmp_path
    )
    assert ran.code == 0
    assert "n: 2  " in ran.text
    assert "# cli --set n\n" in ran.text
    assert ran.stderr == (
        "warning: the variable DEEPINFER_TOPP is unknown and has no effect\n"
        "  hint: did you mean DEEPINFER_TOP_P?\n"
        f"warning: {path}:1:7: seed: 0123 is read as the decimal number 123\n"
    )
    assert not (tmp_path / "x.log").exists()


def test_help_is_data() -> None:
    for args in (["--help"], ["-h"], [], ["run", "--help"], ["completion", "-h"]):
        ran = deepinfer(*args)
        assert (ran.code, ran.stderr) == (0, "")
        assert ran.text.startswith("Usage: deepinfer")
    assert "input order" in deepinfer("run", "--help").text


def test_version() -> None:
    ran = deepinfer("--version")
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.text.startswith(f"deepinfer {__version__} (")
    assert ran.text.count("\n") == 1
    ran = deepinfer("--version", "--json")
    assert f'"version": "{__version__}"' in ran.text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    ran = deepinfer("completion", shell)
    assert (ran.code, ran.stderr) == (0, "")
    assert "_DEEPINFER_COMPLETE" in ran.text


@pytest.mark.parametrize(
    ("words", "position", "found"),
    [
        ("deepinfer ru", "1", "run"),
        ("deepinfer run --temp", "2", "--temperature\n--template"),
        ("deepinfer run --order c", "3", "completion"),
    ],
)
def test_completion_answers(words: str, position: str, found: str) -> None:
    env = {"_DEEPINFER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": position}
    ran = deepinfer(env=env)
    assert (ran.text.strip(), ran.stderr) == (found, "")


# -- failures of every kind -----------------------------------------------------------------------


def main_raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(args: object, console: object) -> int:
        raise error

    monkeypatch.setattr(entry, "run_command", fail)
    return entry.main([])


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (DeepInferError("sentence", "advice"), 1, "error: sentence\n  hint: advice\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (FileNotFoundError(2, "No such file or directory", "x"), 1, "error: x: No such file or directory\n"),
        (OSError(28, "No space left on device", "out"), 1, "error: out: No space left on device\n"),
        (MemoryError(), 1, "error: out of memory\n  hint: lower --max-num-seqs"),
        (ZeroDivisionError("x"), 1, "error: unexpected ZeroDivisionError: x\n  hint: this is a defect"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_happens_is_a_sentence(
    error: BaseException,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("DEEPINFER_DEBUG", raising=False)
    assert main_raising(error, monkeypatch) == code
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(text)
    assert "Traceback" not in captured.err


def test_debug_adds_the_traceback(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DEEPINFER_DEBUG", "1")
    assert main_raising(ZeroDivisionError("x"), monkeypatch) == 1
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("bad_file", 2), ("unsupported", 2), ("bad_request", 2), ("resource", 1), ("internal", 1), ("new", 1)],
)
def test_native_errors_keep_their_message(code: str, exit_code: int) -> None:
    failure = from_native(RuntimeError("tensor x: wanted 3, got 4", code))
    assert failure.message == "tensor x: wanted 3, got 4"
    assert failure.exit_code == exit_code


def test_native_error_type_is_recognised() -> None:
    from deepinfer_cli import _native

    failure = describe(_native.NativeError("m.gguf: wrong magic", "bad_file"))
    assert (failure.message, failure.exit_code) == ("m.gguf: wrong magic", 2)


def shell(line: str) -> subprocess.CompletedProcess[str]:
    env = clean_environ({"DI": f"{sys.executable} -m deepinfer_cli"})
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env, timeout=120)


def test_a_closed_pipe_ends_quietly() -> None:
    done = shell("set -o pipefail; $DI run --print-config | true; echo ${PIPESTATUS[0]}")
    assert done.stderr == ""
    assert done.stdout in ("141\n", "0\n")  # 0 when everything fitted into the pipe before it closed
    done = shell("(sleep 1; $DI run --print-config; echo $? >&2) | true")
    assert done.stderr == "141\n"


def test_closed_descriptors_do_no_harm() -> None:
    done = shell("$DI run --print-config >&-")
    assert done.returncode == 2
    assert "stdout is closed" in done.stderr
    done = shell("$DI run --bad 2>&-; echo $?")
    assert (done.stdout, done.stderr) == ("2\n", "")
    for closing in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        done = shell(f"$DI --version {closing}")
        assert done.returncode == 0
        assert done.stderr == ""


def test_a_full_device_is_a_sentence() -> None:
    if not os.path.exists("/dev/full"):  # noqa: PTH110
        return
    done = shell("$DI run --print-config > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device\n"
    done = shell("$DI --help > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device\n"


def test_ctrl_c_while_the_program_loads_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "fill_closed_descriptors", interrupted)
    assert entry.main(["--version"]) == 130
    assert capfd.readouterr().err == ""
