"""A summary as text for people. A partial evaluation never looks like a whole one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepinfer_cli.eval.types import Published

_NAMES = {
    "correct": "correct",
    "wrong": "wrong",
    "no_answer": "no answer",
    "truncated": "truncated",
    "error": "error",
    "unjudged": "not judged",
}


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def interval_text(estimate: Mapping[str, Any]) -> str:
    if estimate.get("low") is None:
        return "no interval: one problem says nothing about others"
    level = f"{100 * estimate['level']:.0f} %"
    return f"{level} interval {percent(estimate['low'])} to {percent(estimate['high'])}, by problem"


def headline(summary: Mapping[str, Any]) -> str:
    """The score with all that must stand beside it."""
    identity = summary["identity"]
    stamp = "PARTIAL " if summary["partial"] else ""
    if summary["score"] is None:
        return f"{stamp}{identity['title']}: nothing was scored"
    n = summary["samples_per_problem"]
    return (
        f"{stamp}{identity['title']}: avg@{n} {percent(summary['score'])} % "
        f"({interval_text(summary['avg_at_n'])}; {summary['avg_at_n']['num_problems']} problems)"
    )


def table(summary: Mapping[str, Any], published: Sequence[Published] = ()) -> list[str]:
    """Lines, the headline first."""
    lines = [headline(summary)]
    if summary["partial"]:
        count = f"{summary['num_samples']:,} of {_whole(summary):,} samples"
        lines.append(f"  PARTIAL: {count}; not a score of the whole set")
    lines.append("  " + ", ".join(_verdict_parts(summary)))
    if summary["score"] is not None:
        lines += _score_lines(summary)
    lines += _rule_lines(summary)
    lines += _category_lines(summary)
    lines += _warning_lines(summary)
    lines += _opinion_lines(summary)
    lines += published_lines(summary, published)
    return lines


def _whole(summary: Mapping[str, Any]) -> int:
    identity = summary["identity"]
    return int(identity["num_problems_in_data"] * identity["protocol"]["samples_per_problem"])


def _verdict_parts(summary: Mapping[str, Any]) -> list[str]:
    counts = summary["verdicts"]
    return [f"{counts[v]:,} {name}" for v, name in _NAMES.items() if counts[v] or v != "unjudged"]


def _score_lines(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    n = summary["samples_per_problem"]
    if n > 1:
        shown = ", ".join(f"pass@{k} {percent(v)}" for k, v in summary["pass_at_k"].items())
        lines.append(f"  {shown}, majority@{n} {percent(summary['majority_at_n']['mean'])}")
        solved = summary["solved"]
        shown = ", ".join(f"{name} {solved[name]}" for name in ("always", "sometimes", "never"))
        lines.append(f"  problems solved {shown}")
    settings = summary["identity"]["settings"]
    lines.append(
        f"  n {n}, temperature {settings['temperature']:g}, top_p {settings['top_p']:g}, "
        f"max_tokens {settings['max_tokens']:,}; output tokens median "
        f"{summary['tokens']['output_median']:,}, longest {summary['tokens']['output_max']:,}"
    )
    return lines


def _rule_lines(summary: Mapping[str, Any]) -> list[str]:
    rules = summary["rules"]
    if "judge" not in rules:
        return []
    lines = []
    for name, part in rules.items():
        judged = part["num_samples"] - part["num_unjudged"]
        text = f"{part['num_correct']:,} of {judged:,} correct" if judged else "none scored"
        if part["num_unjudged"]:
            text += f", {part['num_unjudged']:,} not judged (--judge URL or --judge local)"
        lines.append(f"  scored by {name}: {text}")
    judge = summary["judge"]
    if judge:
        who = (judge["by"] or {}).get("model") or "unknown"
        stamp = "SELF-JUDGED by the evaluated model" if judge["self_judged"] else f"judged by {who}"
        lines.append(f"  {stamp}; {judge['num_failed']:,} judgements failed")
        lines += [f"    {f['key']}: {f['error']}" for f in judge["failures"][:5]]
    return lines


def _category_lines(summary: Mapping[str, Any]) -> list[str]:
    groups = summary["by_category"]
    width = max((len(name) for name in groups), default=0)
    return [
        f"  {name:<{width}}  {part['num_correct']:>4}/{part['num_samples']:<4} {percent(part['score']):>5} %"
        for name, part in groups.items()
    ]


def _warning_lines(summary: Mapping[str, Any]) -> list[str]:
    lines = [f"  warning: {text}" for text in summary["identity"]["data"].get("warnings", ())]
    cut = summary["truncation"]
    if cut["is_worrying"]:
        lines.append(f"  warning: {percent(cut['share'])} % of samples were cut off; {cut['would_help']}")
    if cut["num_scored_though_cut"]:
        lines.append(
            f"  {cut['num_scored_though_cut']:,} samples were cut off after a complete answer and count"
        )
    return lines


def _opinion_lines(summary: Mapping[str, Any]) -> list[str]:
    opinion = summary["second_opinion"]
    if opinion is None:
        return []
    differ = f"{opinion['num_disagreements']:,} of {opinion['num_asked']:,} differ"
    text = f"  second opinion ({opinion['by']}): {differ}"
    if opinion["num_failed"]:
        text += f", {opinion['num_failed']:,} gave none"
    listed = [
        f"    {d['key']}: {d['ours']}, extracted {d['extracted']!r}" for d in opinion["disagreements"][:5]
    ]
    return [text, *listed]


def published_lines(summary: Mapping[str, Any], published: Sequence[Published]) -> list[str]:
    """Published scores, with where they come from. Shown always: they are what a reader compares with."""
    lines = []
    for entry in published:
        text = f"  published: {entry.label} {percent(entry.score)} % ({entry.source}; {entry.settings})"
        lines.append(text + (f"; {entry.caution}" if entry.caution else ""))
    if summary["identity"].get("caution"):
        lines.append(f"  caution: {summary['identity']['caution']}")
    return lines
