"""Devices other than the CPU: whether one is here, and what a build for it would need.

This version computes on the CPU only. Asking for another device is refused with the list of what it needs
and what of that is missing on this machine, so that nobody finds out one error at a time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAMES: Final = ("cpu", "nvidia", "ascend")


@dataclass(frozen=True, slots=True)
class Prerequisite:
    name: str  # "CUDA 13"
    found: str | None  # what is here, None = nothing
    enough: bool

    def __str__(self) -> str:
        return f"{self.name} ({'found ' + self.found if self.found else 'not found'})"


def detected(dev: Path = Path("/dev")) -> list[str]:
    """Accelerators whose device files are there."""
    found = []
    if (dev / "nvidia0").exists() or (dev / "nvidiactl").exists():
        found.append("nvidia")
    if (dev / "davinci0").exists() or (dev / "davinci_manager").exists():
        found.append("ascend")
    return found


def prerequisites(accelerator: str) -> list[Prerequisite]:
    """What a build for this device needs, checked here."""
    if accelerator == "nvidia":
        return [
            _versioned("CUDA 13", _cuda_version(), 13),
            Prerequisite("an NVIDIA driver", driver := _nvidia_driver(), driver is not None),
            _versioned("GCC 13", _gcc_version(), 13),
        ]
    if accelerator == "ascend":
        cann = _cann_version()
        return [
            Prerequisite("CANN 9.2", cann, cann is not None and _numbers(cann) >= (9, 2)),
            Prerequisite("an Ascend driver", driver := _ascend_driver(), driver is not None),
            _versioned("GCC 13", _gcc_version(), 13),
        ]
    return []


def _versioned(name: str, found: str | None, least: int) -> Prerequisite:
    return Prerequisite(name, found, found is not None and _numbers(found) >= (least,))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _output(*command: str) -> str:
    """What a tool prints, "" when it is not there or does not answer."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _cuda_version() -> str | None:
    return _first(r"release (\d+\.\d+)", _output("nvcc", "--version"))


def _nvidia_driver() -> str | None:
    return _first(r"Kernel Module.*?(\d+\.\d+[.\d]*)", _text_of(Path("/proc/driver/nvidia/version")))


def _cann_version() -> str | None:
    home = os.environ.get("ASCEND_HOME_PATH", "/usr/local/Ascend/ascend-toolkit/latest")
    texts: list[Callable[[], str]] = [
        lambda: _text_of(Path(home) / "version.cfg"),
        lambda: _text_of(Path(home) / "version.info"),
    ]
    return next((v for text in texts if (v := _first(r"[vV]ersion\D*(\d+\.\d+[.\d]*)", text()))), None)


def _ascend_driver() -> str | None:
    return _first(r"[vV]ersion=(\S+)", _text_of(Path("/usr/local/Ascend/driver/version.info")))


def _gcc_version() -> str | None:
    """Of the compiler that a build would use."""
    name = os.environ.get("CXX", "g++")
    if "clang" in name:
        return None
    return _first(r"^(\d+[.\d]*)", _output(name, "-dumpfullversion"))
