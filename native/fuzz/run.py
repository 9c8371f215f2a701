"""Builds the fuzz targets and runs each for its share of the time: what `make fuzz` does.

With a clang that has libFuzzer the targets follow coverage under the address and undefined-behaviour
sanitizers; otherwise the compiler at hand builds them with our own driver, which mutates blindly. New inputs
are kept in BUILD/found/TARGET; findings in BUILD/crashes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NATIVE = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="build folder")
    parser.add_argument("--seconds", type=int, default=120, help="in total, shared by the targets")
    parser.add_argument("--only", action="append", help="a target, without _fuzz; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="for building")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--no-build", action="store_true", help="the targets are there")
    options = parser.parse_args()

    compiler = libfuzzer_compiler()
    names = sorted(source.stem for source in (NATIVE / "fuzz").glob("*_fuzz.cc"))
    if options.only:
        names = [name for name in names if name.removesuffix("_fuzz") in options.only]
    if not names:
        print("no such target", file=sys.stderr)
        return 2
    if not options.no_build:
        build(options.build, compiler, names, options.jobs)
    if options.build_only:
        return 0
    targets = [options.build / "fuzz" / name for name in names]
    seconds = max(1, options.seconds // len(targets))
    failed = [t.name for t in targets if not run(t, options.build, seconds, compiler is not None)]
    print(
        f"{len(targets)} targets, {seconds} s each: "
        + (f"FAILED: {', '.join(failed)}" if failed else "clean")
    )
    return 1 if failed else 0


def libfuzzer_compiler() -> str | None:
    """A clang++ that can link a fuzz target, or None."""
    names = ["clang++", *(f"clang++-{version}" for version in range(22, 13, -1))]
    for name in filter(None, map(shutil.which, names)):
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch, "probe.cc")
            source.write_text(
                "#include <cstdint>\n#include <cstddef>\n#include <compare>\n"
                'extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }\n'
            )
            command = [
                name,
                "-std=c++20",
                "-fsanitize=fuzzer,address,undefined",
                str(source),
                "-o",
                f"{scratch}/probe",
            ]
            if subprocess.run(command, capture_output=True).returncode == 0:
                return name
    return None


def build(folder: Path, compiler: str | None, names: list[str], jobs: int) -> None:
    kinds = "address;undefined" if compiler is None else "fuzzer-no-link;address;undefined"
    settings = ["-DDEEPINFER_FUZZ=ON", f"-DDEEPINFER_SANITIZE={kinds}", "-DCMAKE_BUILD_TYPE=Release"]
    if compiler is not None:
        settings.append(f"-DCMAKE_CXX_COMPILER={compiler}")
    tools = Path(sys.executable).parent
    cmake = str(tools / "cmake") if (tools / "cmake").exists() else "cmake"
    if (tools / "ninja").exists():
        settings += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"]
    subprocess.run(
        [cmake, "-S", str(NATIVE), "-B", str(folder), *settings], check=True, stdout=subprocess.DEVNULL
    )
    subprocess.run([cmake, "--build", str(folder), "-j", str(jobs), "--target", *names], check=True)


def run(target: Path, folder: Path, seconds: int, has_libfuzzer: bool) -> bool:
    stem = target.name.removesuffix("_fuzz")
    crashes = folder / "crashes" / stem
    found = folder / "found" / stem
    corpus = folder / "fuzz" / "corpus" / stem
    for needed in (crashes, found, corpus):
        needed.mkdir(parents=True, exist_ok=True)
    command = [
        str(target.resolve()),
        str(found.resolve()),
        str(corpus.resolve()),
        f"-max_total_time={seconds}",
    ]
    if has_libfuzzer:
        command += ["-timeout=10", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1"]
    done = subprocess.run(command, cwd=crashes, capture_output=True, text=True, errors="replace")
    lines = (done.stdout + done.stderr).splitlines()
    if done.returncode == 0:
        runs = next((line.split()[-1] for line in lines if "number_of_executed_units" in line), None)
        print(
            f"{stem:12} {seconds} s clean, " + (f"{runs} runs" if runs else lines[-1] if lines else ""),
            flush=True,
        )
        return True
    print("\n".join(lines[-60:]))
    print(f"{stem:12} FAILED; input and replay: {target} {crashes}/...", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
