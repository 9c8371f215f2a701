"""The fuzzers of settings, templates, model files and constraints as one line each of the table."""

from __future__ import annotations

from tests.torture import fuzz_config, fuzz_constraints, fuzz_model_files
from tests.torture.fuzzing import fuzz
from tests.torture.jobs import Job, Scale, Scenario, Space, nothing_to_prepare
from tests.torture.record import Tally

TARGETS = {**fuzz_config.TARGETS, **fuzz_model_files.TARGETS, **fuzz_constraints.TARGETS}


def _jobs(scale: Scale) -> list[Job]:
    seconds = max(1.0, scale.seconds * min(scale.factor, 1.0))
    return [
        Job("loaders", f"fuzz {name.replace('_', ' ')}", scale.seed, {"target": name, "seconds": seconds})
        for name in TARGETS
    ]


def _run(job: Job, _space: Space) -> Tally:
    name = job.settings["target"]
    count, findings = fuzz(name, *TARGETS[name], seconds=job.settings["seconds"], seed=job.seed)
    return Tally(injected=count, failures=findings)


SCENARIO = Scenario(
    nothing_to_prepare, _jobs, _run, "settings, templates, model files and constraints mutated, and loaded"
)
