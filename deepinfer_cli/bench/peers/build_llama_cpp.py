"""Builds llama.cpp for this machine from the sources inside the llama-cpp-python package; prints the library.

    python -m deepinfer_cli.bench.peers.build_llama_cpp FOLDER

Ready-made libraries are compiled for the oldest CPUs they want to run on; a comparison of speed needs the
build that llama.cpp's own documentation recommends, with every instruction set of the machine. Takes about
five minutes of CPU time, once; a finished build is found again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from deepinfer_cli.bench.peers.llama_cpp import LIBRARY_VARIABLE
from deepinfer_cli.errors import EngineError

VERSION: Final = "0.3.36"
_TARGETS: Final = ("llama", "llama-quantize", "llama-completion")
_OPTIONS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DBUILD_SHARED_LIBS=ON",
)


def run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise EngineError(f"{command[0]} failed with code {done.returncode}:\n{tail}")


def _sources(folder: Path) -> Path:
    """The unpacked llama.cpp, fetched with this environment's pip when it is not there."""
    source = folder / f"llama_cpp_python-{VERSION}" / "vendor" / "llama.cpp"
    if not source.is_dir():
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
        pip += ["--no-binary", "llama-cpp-python", "-d", str(folder), f"llama-cpp-python=={VERSION}"]
        run(*pip)
        with tarfile.open(folder / f"llama_cpp_python-{VERSION}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return source


def build(folder: Path) -> Path:
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return Path(named)
    library = folder / "build" / "bin" / "libllama.so"
    if not library.exists() or not (library.parent / "llama-completion").exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = _sources(folder)
        scripts = Path(sys.executable).parent  # cmake and ninja come as wheels
        print("building llama.cpp for this machine, about five CPU minutes", file=sys.stderr)
        ninja = f"-DCMAKE_MAKE_PROGRAM={scripts / 'ninja'}"
        run(scripts / "cmake", "-S", source, "-B", folder / "build", "-G", "Ninja", ninja, *_OPTIONS)
        run(scripts / "cmake", "--build", folder / "build", "-j", str(os.cpu_count()), "--target", *_TARGETS)
    return library


def quantize(tools: Path, model: Path, target: Path, kind: str) -> Path:
    """`model` in another format of llama.cpp's, made by its own tool."""
    if not target.exists():
        partial = target.with_suffix(".partial")
        run(tools / "llama-quantize", "--allow-requantize", model, partial, kind, str(os.cpu_count()))
        partial.rename(target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    print(build(parser.parse_args().folder))


if __name__ == "__main__":
    main()
