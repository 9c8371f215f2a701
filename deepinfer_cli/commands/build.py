"""`deepinfer build`: the native core, for this machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deepinfer_cli import accelerators
from deepinfer_cli.console import Console
from deepinfer_cli.errors import EXIT_FATAL, EXIT_OK, DeepInferError, UsageError

BUILD_TOOLS = {
    "scikit_build_core": "scikit-build-core",
    "nanobind": "nanobind",
    "cmake": "cmake",
    "ninja": "ninja",
}


def command(
    ctx: typer.Context,
    accelerator: Annotated[
        str | None,
        typer.Option(
            "--accelerator",
            metavar="|".join(accelerators.NAMES),
            help="Device to build for; default from DEEPINFER_ACCELERATOR, else cpu",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Build nothing; only run the kernel self-test")
    ] = False,
) -> int:
    """Rebuild the native core from a source checkout, then check every kernel against its scalar twin.

    One build holds the kernels of every instruction set level; which of them run is decided at start. So a
    rebuild is needed after a change of sources or of the compiler, not after a change of machine.
    """
    console: Console = ctx.obj
    _check_accelerator(accelerator, console)
    if not check:
        _build(source_root(), console)
        # The freshly built core is another file than the one that this process may have loaded.
        again = [sys.executable, "-m", "deepinfer_cli", "build", "--check"]
        return subprocess.run(again, check=False).returncode
    return _self_test(console)


def source_root() -> Path | None:
    """The checkout that this package runs from, None for an installed wheel."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "native" / "CMakeLists.txt").is_file() else None


def _check_accelerator(given: str | None, console: Console) -> None:
    wanted = given or os.environ.get("DEEPINFER_ACCELERATOR") or "cpu"
    if wanted not in accelerators.NAMES:
        raise UsageError(f"unknown accelerator {wanted}", f"one of {', '.join(accelerators.NAMES)}")
    if wanted == "cpu":
        for name in accelerators.detected():
            console.info(f"there is an {name} device here; this version computes on the CPU only")
        return
    needs = accelerators.prerequisites(wanted)
    missing = [str(need) for need in needs if not need.enough]
    here = f"missing here: {', '.join(missing)}" if missing else "all of it is here"
    raise UsageError(
        f"this version has no {wanted} engine; one needs {', '.join(need.name for need in needs)}; {here}",
        "--accelerator cpu builds the engine that runs everywhere",
    )


def _build(root: Path | None, console: Console) -> None:
    if root is None:
        raise UsageError(
            "deepinfer was installed without its sources, so there is nothing to build here",
            "pip install --force-reinstall --no-deps --no-binary deepinfer-cli deepinfer-cli",
        )
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    missing = [name for module, name in BUILD_TOOLS.items() if importlib.util.find_spec(module) is None]
    if not missing:
        command.append("--no-build-isolation")  # incremental; otherwise pip brings the tools itself
    console.info(f"building the native core in {root}")
    done = subprocess.run([*command, "-e", str(root)], check=False, stdout=sys.stderr, stderr=sys.stderr)
    if done.returncode != 0:
        raise DeepInferError(
            f"the build failed with exit code {done.returncode}; its messages are above",
            "`make tools` names compilers and headers that are missing",
        )


def _self_test(console: Console) -> int:
    from deepinfer_cli import machine

    problem = machine.native_problem()
    if problem is not None:
        raise DeepInferError(f"the native core cannot be loaded: {problem}", "deepinfer build")
    checks: list[Any] = machine.kernel_checks()
    failed = [check for check in checks if not check.ok]
    for check in failed:
        console.error(f"kernel {check.kernel} at level {check.isa}: {check.detail}")
    levels = ", ".join(machine.isa_levels())
    if failed:
        console.error(f"{len(failed)} of {len(checks)} kernel checks failed", "this build must not be used")
        return EXIT_FATAL
    console.info(
        f"{len(checks)} kernel checks passed at the levels {levels}; {machine.default_isa()} will run"
    )
    return EXIT_OK
