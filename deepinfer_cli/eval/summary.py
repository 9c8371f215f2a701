"""From samples to numbers. A pure function of the samples and of what was to be asked, so that it can be
recomputed at any time and comes out the same after an interruption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from deepinfer_cli.eval.samples import Sample
from deepinfer_cli.eval.scoring.score import JUDGE_SCORER
from deepinfer_cli.eval.scoring.types import SCORER_VERSION, VERDICTS
from deepinfer_cli.stats.repeats import MeanEstimate, clustered_mean, majority_share, mean_pass_at_k

SCHEMA_VERSION = 1
TRUNCATION_WARNING_SHARE = 0.02
_MAX_LISTED = 20


def summarise(samples: Sequence[Sample], identity: Mapping[str, Any]) -> dict[str, Any]:
    """`identity`: eval.json, which says what was asked. Samples are in problem order."""
    judged = [s for s in samples if s["verdict"] != "unjudged"]
    by_problem = _grouped(judged, "problem")
    verdicts = Counter(s["verdict"] for s in samples)
    expected = identity["num_problems"] * identity["protocol"]["samples_per_problem"]
    summary: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "task": identity["task"],
        "partial": bool(identity.get("limit")) or len(samples) < expected,
        "model": identity.get("model"),
        "score": None,
        "num_problems": len(_grouped(samples, "problem")),
        "num_samples": len(samples),
        "num_samples_expected": expected,
        "verdicts": {name: verdicts.get(name, 0) for name in VERDICTS},
        "scorer_version": SCORER_VERSION,
        "identity": dict(identity),
    }
    if by_problem:
        summary.update(_scores(by_problem))
    summary["truncation"] = _truncation(samples, identity)
    summary["by_category"] = _by_category(judged)
    summary["rules"] = _by_rule(samples)
    summary["second_opinion"] = _second_opinion(samples)
    summary["judge"] = _judge(samples, identity)
    summary["problems"] = [_problem(name, group) for name, group in _grouped(samples, "problem").items()]
    summary["tokens"] = _tokens(samples)
    return summary


def _grouped(samples: Sequence[Sample], field: str) -> dict[str, list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample[field], []).append(sample)
    return groups


def _is_right(sample: Sample) -> bool:
    return bool(sample["verdict"] == "correct")


def _scores(by_problem: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    """avg@n with its interval, pass@k for each k that all problems have samples for, and the majority."""
    estimate = clustered_mean([[float(_is_right(s)) for s in group] for group in by_problem.values()])
    counts = [(len(group), sum(map(_is_right, group))) for group in by_problem.values()]
    smallest = min(n for n, _ in counts)
    shares = [
        majority_share([s.get("vote") for s in g], [_is_right(s) for s in g]) for g in by_problem.values()
    ]
    majority = clustered_mean([[share] for share in shares])
    return {
        "score": estimate.mean,
        "samples_per_problem": smallest,
        "avg_at_n": _estimate(estimate),
        "pass_at_k": {str(k): mean_pass_at_k(counts, k) for k in _ks(smallest)},
        "majority_at_n": _estimate(majority),
        "solved": {
            "always": sum(c == n for n, c in counts),
            "sometimes": sum(0 < c < n for n, c in counts),
            "never": sum(c == 0 for _, c in counts),
        },
    }


def _ks(largest: int) -> list[int]:
    powers = [1 << i for i in range(largest.bit_length()) if 1 << i <= largest]
    return powers if powers[-1] == largest else [*powers, largest]


def _estimate(estimate: MeanEstimate) -> dict[str, Any]:
    interval = estimate.interval
    return {
        "mean": estimate.mean,
        "standard_error": estimate.standard_error,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "level": None if interval is None else interval.level,
        "method": None if interval is None else interval.method,
        "num_problems": estimate.num_clusters,
        "num_samples": estimate.num_values,
    }


def _truncation(samples: Sequence[Sample], identity: Mapping[str, Any]) -> dict[str, Any]:
    cut = [s for s in samples if s["verdict"] == "truncated"]
    scored_though_cut = sum(
        s["verdict"] in ("correct", "wrong") and s.get("finish_reason") in ("length", "context")
        for s in samples
    )
    share = len(cut) / len(samples) if samples else 0.0
    by_context = sum(s.get("finish_reason") == "context" for s in cut)
    limit = (identity.get("settings") or {}).get("max_tokens")
    help_text = None
    if cut:
        flag = "--max-model-len" if by_context * 2 > len(cut) else "--max-tokens"
        help_text = f"raise {flag}" + (f" (now {limit:,})" if flag == "--max-tokens" and limit else "")
    return {
        "share": share,
        "num_truncated": len(cut),
        "num_scored_though_cut": scored_though_cut,
        "num_by_context": by_context,
        "would_help": help_text,
        "is_worrying": share > TRUNCATION_WARNING_SHARE,
    }


def _by_category(samples: Sequence[Sample]) -> dict[str, Any]:
    groups = _grouped([s for s in samples if s.get("category")], "category")
    return {
        name: {
            "num_problems": len(_grouped(group, "problem")),
            "num_samples": len(group),
            "num_correct": sum(map(_is_right, group)),
            "score": sum(map(_is_right, group)) / len(group),
        }
        for name, group in groups.items()
    }


def _by_rule(samples: Sequence[Sample]) -> dict[str, Any]:
    """How much rests on rules and how much on a judge."""
    parts = {"rule": [s for s in samples if s["scorer"] != JUDGE_SCORER]}
    parts["judge"] = [s for s in samples if s["scorer"] == JUDGE_SCORER]
    return {
        name: {
            "num_samples": len(group),
            "num_correct": sum(map(_is_right, group)),
            "num_unjudged": sum(s["verdict"] == "unjudged" for s in group),
        }
        for name, group in parts.items()
        if group
    }


def _second_opinion(samples: Sequence[Sample]) -> dict[str, Any] | None:
    asked = [s for s in samples if s.get("second") is not None]
    if not asked:
        return None
    failed = [s for s in asked if s["second"]["is_correct"] is None]
    differ = [
        s
        for s in asked
        if s["second"]["is_correct"] is not None and s["second"]["is_correct"] != _is_right(s)
    ]
    return {
        "by": asked[0]["second"]["by"],
        "num_asked": len(asked),
        "num_failed": len(failed),
        "num_disagreements": len(differ),
        "disagreements": [
            {"key": s["key"], "ours": s["verdict"], "extracted": s["extracted"]} for s in differ[:_MAX_LISTED]
        ],
    }


def _judge(samples: Sequence[Sample], identity: Mapping[str, Any]) -> dict[str, Any] | None:
    judged = [s for s in samples if s.get("judge") is not None]
    if not judged:
        return None
    failed = [s for s in judged if s["judge"].get("error")]
    return {
        "by": identity.get("judge"),
        "self_judged": bool((identity.get("judge") or {}).get("self_judged")),
        "num_judged": len(judged) - len(failed),
        "num_failed": len(failed),
        "failures": [{"key": s["key"], "error": s["judge"]["error"]} for s in failed[:_MAX_LISTED]],
    }


def _problem(name: str, group: Sequence[Sample]) -> dict[str, Any]:
    verdicts = Counter(s["verdict"] for s in group)
    return {
        "problem": name,
        "category": group[0].get("category"),
        "num_samples": len(group),
        "num_correct": verdicts.get("correct", 0),
        "verdicts": dict(sorted(verdicts.items())),
    }


def _tokens(samples: Sequence[Sample]) -> dict[str, Any]:
    """Over distinct rows; the length of outputs tells how much room max_tokens left."""
    outputs = sorted((s.get("usage") or {}).get("completion_tokens", 0) for s in samples)
    prompts = sum((s.get("usage") or {}).get("prompt_tokens", 0) for s in samples)
    return {
        "prompt": prompts,
        "output": sum(outputs),
        "output_median": outputs[len(outputs) // 2] if outputs else 0,
        "output_max": outputs[-1] if outputs else 0,
    }
