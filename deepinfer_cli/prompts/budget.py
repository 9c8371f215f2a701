"""What one rendering of an untrusted template may use, and checks of operations before they run."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from typing import Any

import jinja2

MAX_TEMPLATE_BYTES = 1 << 18  # published templates have up to 20,000
MAX_STEPS = 500_000  # loop turns, calls, operators and container entries looked at
MAX_CHARS = 64 << 20  # characters handled, intermediate ones included
MAX_SECONDS = 20.0  # of this thread's processor time; what takes this long is hostile, not slow
MAX_WIDTH = 10_000  # of one padded field
MAX_INT_BITS = 4096

_WIDTHS = {"ljust", "rjust", "center", "zfill", "expandtabs"}
_LONG_NUMBER = re.compile(r"\d{5}")


class TemplateLimit(jinja2.TemplateError):
    """The template asks for more than a prompt can need."""


class Budget(threading.local):
    """Per thread, so that one compiled template can render in several."""

    def __init__(self) -> None:
        self.steps = self.chars = 0
        self.deadline = 0.0
        self.restart()

    def restart(self) -> None:
        self.steps, self.chars = MAX_STEPS, MAX_CHARS
        self.deadline = time.thread_time() + MAX_SECONDS

    def charge(self, steps: int, chars: int = 0) -> None:
        self.steps -= steps
        self.chars -= chars
        if self.steps < 0:
            raise TemplateLimit(f"the template takes more than {MAX_STEPS} steps")
        if self.chars < 0:
            raise TemplateLimit(f"the template handles more than {MAX_CHARS} characters")
        if time.thread_time() > self.deadline:
            raise TemplateLimit(f"the template takes more than {MAX_SECONDS:g} seconds")

    def charge_value(self, value: Any) -> None:
        """Charges for looking at all of `value`. The same list met twice counts twice, as in its text."""
        if isinstance(value, (str, bytes)):
            self.charge(1, len(value))
            return
        pending = [value]
        while pending:
            item = pending.pop()
            if isinstance(item, Mapping):
                self.charge(1 + len(item), 4 * len(item))
                pending.extend(item.keys())
                pending.extend(item.values())
            elif isinstance(item, (list, tuple)):
                self.charge(1 + len(item), 2 * len(item))
                pending.extend(item)
            elif isinstance(item, (str, bytes)):
                self.charge(0, len(item))


def size_of(value: Any) -> int:
    """Characters of a string or entries of a container; 1 for the rest."""
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 1


def check_binop(operator: str, left: Any, right: Any) -> int:
    """Characters or entries that the operation makes; raises when it should not run at all."""
    if operator == "*":
        return _product_size(left, right)
    if operator == "**":
        if not isinstance(right, (int, float)) or abs(right) > 64 or _bits(left) > 64:
            raise TemplateLimit("the template raises to a large power")
    elif operator == "%" and isinstance(left, (str, bytes)):
        check_format(left)
    elif max(_bits(left), _bits(right)) > MAX_INT_BITS:
        raise TemplateLimit("the template makes a very large number")
    return size_of(left) + size_of(right)


def check_method(owner: str | bytes, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Characters that a method of a string may make beyond its own text."""
    values = (*args, *kwargs.values())
    if name in _WIDTHS:
        for value in values:
            check_width(value)
        tabs = owner.count("\t") if isinstance(owner, str) else owner.count(b"\t")
        return tabs * MAX_WIDTH if name == "expandtabs" and values else MAX_WIDTH
    if name in ("format", "format_map"):
        check_format(owner)
    elif name == "translate":
        raise TemplateLimit("the template uses translate()")
    elif name == "replace" and len(args) >= 2:
        return replaced_size(owner, args[0], args[1])
    elif name == "join" and args:
        return joined_size(owner, args[0])
    return sum(map(size_of, values))


def joined_size(separator: str | bytes, items: Any) -> int:
    return len(items) * len(separator) + sum(map(size_of, items))


def replaced_size(text: Any, old: Any, new: Any) -> int:
    if type(text) is not type(old) or not isinstance(new, (str, bytes)):
        return 0
    return int(text.count(old) if old else len(text) + 1) * len(new)


def check_format(template: str | bytes) -> None:
    text = template if isinstance(template, str) else template.decode("latin-1")
    if _LONG_NUMBER.search(text) or "*" in text or re.search(r"\{[^{}]*\{", text):
        raise TemplateLimit("the template pads to a large or computed width")


def check_width(width: Any) -> None:
    if isinstance(width, int) and width > MAX_WIDTH:
        raise TemplateLimit(f"the template pads to more than {MAX_WIDTH} characters")


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _product_size(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        if _bits(left) + _bits(right) > MAX_INT_BITS:
            raise TemplateLimit("the template makes a very large number")
        return 1
    times, value = (left, right) if isinstance(left, int) else (right, left)
    return max(times, 0) * size_of(value) if isinstance(times, int) else 1
