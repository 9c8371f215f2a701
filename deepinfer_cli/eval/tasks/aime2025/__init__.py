"""American Invitational Mathematics Examination 2025, both papers: 30 problems."""

from __future__ import annotations

from deepinfer_cli.eval.tasks.aime import AimeTask


class Aime2025(AimeTask):
    name = "aime2025"
    title = "AIME 2025"
    caution = "saturated: strong models and their quantised builds all come close to 100 %"
    needs_data = "a file with the columns problem_idx, problem and answer"


TASK = Aime2025
