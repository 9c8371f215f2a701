"""What a run counts, and the summary it ends with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepinfer_cli.requests.types import RowError, RowIdentity

_SHOWN_FAILURES = 5
_SHOWN_ATTEMPTS = 5


@dataclass(slots=True)
class Counters:
    num_read: int = 0  # non-blank rows
    num_ok: int = 0
    num_failed: int = 0
    num_other_shard: int = 0
    num_dropped_duplicates: int = 0
    num_abandoned: int = 0  # read but not written when the run was stopped
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_kept_prompt_tokens: int = 0  # of rows that an earlier attempt ran
    num_kept_output_tokens: int = 0
    num_preemptions: int = 0
    longest_prompt: int = 0
    longest_prompt_line: int = 0
    by_code: Counter[str] = field(default_factory=Counter)
    by_finish: Counter[str] = field(default_factory=Counter)
    by_warning: Counter[str] = field(default_factory=Counter)
    first_failures: list[str] = field(default_factory=list)

    @property
    def num_done(self) -> int:
        return self.num_ok + self.num_failed

    def add_failure(self, identity: RowIdentity, error: RowError, file_names: tuple[str, ...]) -> None:
        self.num_failed += 1
        self.by_code[error.code] += 1
        if len(self.first_failures) < _SHOWN_FAILURES:
            place = f"line {identity.line}"
            if len(file_names) > 1:
                place = f"{file_names[identity.file_number]} {place}"
            shown = error.message if len(error.message) <= 160 else error.message[:157] + "..."
            self.first_failures.append(f"{place}: {error.code}: {shown}")

    def as_json(self) -> dict[str, Any]:
        """For OUT.run.json."""
        return {
            "rows": self.num_read,
            "ok": self.num_ok,
            "failed": self.num_failed,
            "by_code": dict(sorted(self.by_code.items())),
            "by_finish_reason": dict(sorted(self.by_finish.items())),
            "warnings": dict(sorted(self.by_warning.items())),
            "other_shard": self.num_other_shard,
            "dropped_duplicates": self.num_dropped_duplicates,
            "abandoned": self.num_abandoned,
            "prompt_tokens": self.num_kept_prompt_tokens + self.num_prompt_tokens,
            "output_tokens": self.num_kept_output_tokens + self.num_output_tokens,
        }

    def own(self) -> dict[str, int]:
        """What this attempt computed, for its entry in OUT.run.json."""
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "cached_tokens": self.num_cached_tokens,
            "output_tokens": self.num_output_tokens,
            "preemptions": self.num_preemptions,
        }


def summary(
    counters: Counters,
    seconds: float,
    *,
    damaged: int,
    ran: bool,
    attempts: Sequence[Mapping[str, Any]] = (),
) -> list[str]:
    """Lines for stderr at the end of a run; `seconds` is wall time of this attempt from the first read to the
    last write. Rows and tokens are those of all attempts."""
    c = counters
    head = f"{c.num_done:,} rows: {c.num_ok:,} ok, {c.num_failed:,} failed"
    if c.num_failed:
        head += f" ({_counted(c.by_code)})"
    for count, what in (
        (c.num_other_shard, "left to other shards"),
        (c.num_dropped_duplicates, "duplicates left out"),
        (c.num_abandoned, "abandoned (not written)"),
        (damaged, "inputs ended early"),
    ):
        if count:
            head += f", {count:,} {what}"
    lines = [head]
    if c.num_ok and ran:
        lines.append(_token_line(c, seconds))
    if len(attempts) > 1:
        lines.append(_attempts_line(attempts))
    if c.by_warning:
        lines.append(f"warnings in rows: {_counted(c.by_warning)}")
    lines += [f"  {failure}" for failure in c.first_failures]
    if c.num_failed > len(c.first_failures):
        lines.append(f"  ... and {c.num_failed - len(c.first_failures):,} more")
    return lines


def _token_line(c: Counters, seconds: float) -> str:
    num_in = c.num_kept_prompt_tokens + c.num_prompt_tokens
    num_out = c.num_kept_output_tokens + c.num_output_tokens
    text = f"tokens: {num_in:,} in, {num_out:,} out"
    if seconds > 0:
        text += f", {c.num_output_tokens / seconds:,.0f} out/s"
    if c.num_prompt_tokens:
        text += f"; {100 * c.num_cached_tokens / c.num_prompt_tokens:.0f} % of prompts from the prefix cache"
    if c.num_preemptions:
        text += f"; {c.num_preemptions:,} preemptions"
    return f"{text}; {seconds:.1f} s" if seconds > 0 else text


def _attempts_line(attempts: Sequence[Mapping[str, Any]]) -> str:
    """Every attempt of the run, the last few one by one."""
    shown = []
    for attempt in attempts[-_SHOWN_ATTEMPTS:]:
        seconds = attempt.get("seconds")
        took = f" in {seconds:,.1f} s" if isinstance(seconds, int | float) else ""
        shown.append(f"{attempt.get('rows', 0):,} rows{took} ({attempt.get('status')})")
    if len(attempts) > len(shown):
        shown.insert(0, "...")
    known = [a["seconds"] for a in attempts if isinstance(a.get("seconds"), int | float)]
    return f"{len(attempts)} attempts, {sum(known):,.1f} s in all: {', '.join(shown)}"


def _counted(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered)
