"""American Invitational Mathematics Examination 2026, both papers: 30 problems."""

from __future__ import annotations

from deepinfer_cli.eval.tasks.aime import AimeTask
from deepinfer_cli.eval.types import HubSource


class Aime2026(AimeTask):
    name = "aime2026"
    title = "AIME 2026"
    hub = HubSource("MathArena/aime_2026", split="train")


TASK = Aime2026
