"""Every native fuzzer for its share of the time, under sanitizers.

Inputs that reached new code are kept in build/fuzz/found, findings in build/fuzz/crashes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.torture.jobs import Job, Scale, Scenario, Space
from tests.torture.record import Tally

ROOT = Path(__file__).resolve().parents[2]
_BUILD = ROOT / "build" / "fuzz"
_RUN = ROOT / "native" / "fuzz" / "run.py"
_COUNT = re.compile(r"([\d,]+) (?:runs|mutations|inputs)\b")
_LAST_LINES = 8


def targets() -> list[str]:
    return sorted(path.name.removesuffix("_fuzz.cc") for path in _RUN.parent.glob("*_fuzz.cc"))


def _prepare(_shared: Path, _scale: Scale) -> None:
    command = [sys.executable, str(_RUN), "--build", str(_BUILD), "--build-only"]
    subprocess.run(command, check=True, stdout=sys.stderr)


def _jobs(scale: Scale) -> list[Job]:
    seconds = max(1, round(scale.seconds * min(scale.factor, 1.0)))
    return [
        Job("fuzz", f"fuzz {name.replace('_', ' ')}", scale.seed, {"target": name, "seconds": seconds})
        for name in targets()
    ]


def _run(job: Job, _space: Space) -> Tally:
    seconds = str(job.settings["seconds"])
    command = [str(_RUN), "--build", str(_BUILD), "--no-build", "--only", job.settings["target"]]
    done = subprocess.run(
        [sys.executable, *command, "--seconds", seconds], cwd=ROOT, capture_output=True, text=True
    )
    tally = Tally(injected=sum(int(count.replace(",", "")) for count in _COUNT.findall(done.stdout)))
    if done.returncode != 0:
        said = (done.stdout + done.stderr).splitlines()
        tally.failures.append("\n".join((" ".join(command), *said[-_LAST_LINES:])))
    elif not tally.injected:
        tally.failures.append(f"{' '.join(command)}: says no number of inputs: {done.stdout}")
    return tally


SCENARIO = Scenario(_prepare, _jobs, _run, "every native fuzzer for --seconds (injected: inputs)")
