"""`deepinfer eval compare A B`: two evaluations of one task, paired by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deepinfer_cli.errors import InputError
from deepinfer_cli.eval.identity import Identity, read_identity
from deepinfer_cli.eval.samples import SAMPLES, Sample, merged, read_samples
from deepinfer_cli.eval.show import percent
from deepinfer_cli.stats.comparison import mcnemar, paired_difference

_SIGNIFICANT = 0.05


def compare(first: Path, second: Path) -> dict[str, Any]:
    """The comparison as plain JSON values. InputError when the two cannot be paired."""
    sides = [_side(folder) for folder in (first, second)]
    (a_identity, a_means), (b_identity, b_means) = sides
    if a_identity["task"] != b_identity["task"]:
        raise InputError(
            f"{first} is {a_identity['task']} and {second} is {b_identity['task']}: nothing to pair"
        )
    common = [p for p in a_means if p in b_means]
    if not common:
        raise InputError(f"{first} and {second} have no problem in common")
    a, b = [a_means[p][0] for p in common], [b_means[p][0] for p in common]
    difference = paired_difference(a, b)
    single = all(a_means[p][1] == 1 and b_means[p][1] == 1 for p in common)
    test = mcnemar([x == 1 for x in a], [x == 1 for x in b]) if single else None
    p_value = test.p_value if test is not None else difference.p_value
    excludes_zero = difference.low > 0 or difference.high < 0
    return {
        "task": a_identity["task"],
        "first": _describe(first, a_identity, a),
        "second": _describe(second, b_identity, b),
        "num_problems": len(common),
        "num_unpaired": len(a_means) + len(b_means) - 2 * len(common),
        "difference": difference.difference,
        "low": difference.low,
        "high": difference.high,
        "level": difference.level,
        "p_value": p_value,
        "test": "exact McNemar" if single else "random signs of problem differences",
        "only_first": None if test is None else test.only_first,
        "only_second": None if test is None else test.only_second,
        "is_real": p_value < _SIGNIFICANT and (excludes_zero or single),
        "cautions": _cautions(a_identity, b_identity),
        "changed": [
            {"problem": p, "first": x, "second": y} for p, x, y in zip(common, a, b, strict=True) if x != y
        ],
    }


def _side(folder: Path) -> tuple[Identity, dict[str, tuple[float, int]]]:
    """(identity, problem -> (mean, samples)). Unjudged samples do not count."""
    identity = read_identity(folder)
    groups: dict[str, list[Sample]] = {}
    for sample in merged(read_samples(folder / SAMPLES), identity.get("problem_order") or ()):
        if sample["verdict"] != "unjudged":
            groups.setdefault(sample["problem"], []).append(sample)
    if not groups:
        raise InputError(f"{folder} holds no scored samples", "run the evaluation first")
    return identity, {
        p: (sum(s["verdict"] == "correct" for s in g) / len(g), len(g)) for p, g in groups.items()
    }


def _describe(folder: Path, identity: Identity, means: Sequence[float]) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "model": (identity.get("model") or {}).get("name"),
        "samples_per_problem": identity["protocol"]["samples_per_problem"],
        "score": sum(means) / len(means),
    }


def _cautions(a: Identity, b: Identity) -> list[str]:
    """What differs besides the model: a difference of scores may come from there."""
    cautions = []
    if (a.get("data") or {}).get("sha256") != (b.get("data") or {}).get("sha256"):
        cautions.append("the data files differ")
    for part, what in (("settings", "settings"), ("engine", "engine settings")):
        before, after = a.get(part) or {}, b.get(part) or {}
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        if keys:
            shown = ", ".join(f"{key} {before.get(key)} / {after.get(key)}" for key in keys)
            cautions.append(f"{what} differ: {shown}")
    if a.get("limit") or b.get("limit"):
        cautions.append("partial: --limit left problems out")
    if a.get("scorer_version") != b.get("scorer_version"):
        cautions.append("scored by different versions of the rules; --rescore both")
    if (a.get("judge") or {}).get("model") != (b.get("judge") or {}).get("model"):
        cautions.append("judged by different judges")
    return cautions


def comparison_lines(result: Mapping[str, Any]) -> list[str]:
    """The comparison for people: the numbers, then one sentence that says what they mean."""
    lines = []
    for name in ("first", "second"):
        side = result[name]
        lines.append(
            f"{side['folder']}: {side['model']}, avg@{side['samples_per_problem']} {percent(side['score'])} %"
        )
    lines.append(
        f"difference {100 * result['difference']:+.1f} points "
        f"({100 * result['level']:.0f} % interval {100 * result['low']:+.1f} to {100 * result['high']:+.1f}, "
        f"{result['num_problems']} problems, {result['test']} p = {result['p_value']:.3g})"
    )
    if result["only_first"] is not None:
        lines.append(
            f"solved by the first only: {result['only_first']}, by the second only: {result['only_second']}"
        )
    if result["num_unpaired"]:
        lines.append(f"{result['num_unpaired']} problems are in one of the two only and do not count")
    lines += [f"caution: {text}" for text in result["cautions"]]
    if result["is_real"]:
        better = "second" if result["difference"] > 0 else "first"
        lines.append(f"The difference is real at the 5 % level: the {better} is better on these problems.")
    else:
        lines.append("No difference that these problems could show: it may be chance.")
    return lines
