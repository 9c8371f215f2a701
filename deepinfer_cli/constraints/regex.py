"""Regular expressions: checked by Python's `re`, and written out anew for the engine from `re`'s own tree.

Nothing of the pattern's text reaches the engine, so the two cannot read it differently: sets are spelled by
code points, groups are plain, flags are worked in. What has no exact counterpart is refused by name.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final, NoReturn

from deepinfer_cli.constraints import charset
from deepinfer_cli.constraints.pattern_complement import TooLarge, others
from deepinfer_cli.constraints.pattern_scan import MAX_PATTERN_BYTES, Scanned, scan
from deepinfer_cli.constraints.together import MAX_TOGETHER
from deepinfer_cli.constraints.types import ConstraintError
from deepinfer_cli.errors import in_short

MAX_BYTES: Final = MAX_PATTERN_BYTES
MAX_COUNT: Final = 10_000  # product of the counts of repeats that stand in each other
MAX_SPREAD: Final = 8
_REMEMBERED_CHARS: Final = 200  # schemas have the same short patterns again and again
_ANYTHING: Final = "(?s:.*)"

warnings.filterwarnings("ignore", message="Possible (nested set|set )", category=FutureWarning)

Item = tuple[Any, Any]  # (opcode, argument) of re's tree

_STARTS: Final = (op.AT_BEGINNING, op.AT_BEGINNING_STRING)
_ENDS: Final = (op.AT_END, op.AT_END_STRING)
_DIGIT, _SPACE, _WORD = "digit", "space", "word"
_KINDS: Final = {
    op.CATEGORY_DIGIT: (_DIGIT, False),
    op.CATEGORY_NOT_DIGIT: (_DIGIT, True),
    op.CATEGORY_SPACE: (_SPACE, False),
    op.CATEGORY_NOT_SPACE: (_SPACE, True),
    op.CATEGORY_WORD: (_WORD, False),
    op.CATEGORY_NOT_WORD: (_WORD, True),
}


def lark(pattern: str) -> str:
    """The engine's grammar of the texts that `re.fullmatch(pattern, text)` takes."""
    writer, items, flags = _open(pattern, ecma=False)
    ahead, rest = _look_aheads(items)
    if len(ahead) >= MAX_TOGETHER:
        writer.refuse(f"more than {MAX_TOGETHER - 1} look-aheads", ("(?=", "(?!"))
    parts = [writer.look_ahead(item, flags) for item in ahead]
    parts.append(f"/{writer.sequence(rest, flags, '', '') or '(?:)'}/")
    return "start: TEXT\nTEXT: " + " & ".join(parts)


def search_patterns(pattern: str) -> tuple[str, ...]:
    """Of a schema's `pattern`: patterns anchored at both ends that a text must fit all.

    JSON Schema means ECMA-262, the check of finished texts is Python's `re`; where the two differ (`\\d`,
    `\\w`, `\\s`, `.` and `$`), only what both take is let through.
    """
    return _remembered(pattern) if len(pattern) <= _REMEMBERED_CHARS else _search_patterns(pattern)


def _search_patterns(pattern: str) -> tuple[str, ...]:
    writer, items, flags = _open(pattern, ecma=True)
    ahead, rest = _look_aheads(items)
    if ahead and (not items or items[0] not in [(op.AT, code) for code in _STARTS]):
        writer.refuse("a look-ahead without ^ in front", ("(?=", "(?!"))
    found = []
    for code, argument in ahead:
        if code is op.ASSERT_NOT:
            try:
                found.append(others(argument[1], flags))
            except TooLarge:
                writer.refuse("a negative look-ahead of this kind", ("(?!",))
            continue
        found.append(writer.sequence(argument[1], flags, "", _ANYTHING))
    left = "" if ahead else _ANYTHING
    found.append(writer.sequence(rest, flags, left, _ANYTHING))
    return tuple(f"^(?:{text})$" for text in found)


_remembered = lru_cache(512)(_search_patterns)


def _one_line(text: str) -> str:
    """What `re` says may quote the pattern as it is, and in its whole length."""
    return in_short("".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text))


def _open(pattern: str, *, ecma: bool) -> tuple[_Writer, list[Item], int]:
    """(writer, items of the outermost sequence, flags) of a pattern that is well formed."""
    try:
        num_bytes = len(pattern.encode())
    except UnicodeEncodeError:
        raise ConstraintError("bad_schema", "the pattern has a lone surrogate") from None
    if num_bytes > MAX_BYTES:
        raise ConstraintError(
            "bad_schema", f"the pattern has {num_bytes:,} bytes; at most {MAX_BYTES:,} are taken"
        )
    if "\0" in pattern:
        raise ConstraintError("bad_schema", f"the pattern has a NUL at position {pattern.index(chr(0))}")
    scanned = scan(pattern)
    try:
        tree = _parser.parse(scanned.parsable, 0)
    except re.error as error:
        place = "" if error.pos is None else f" at position {error.pos}"
        said = _one_line(error.msg)
        raise ConstraintError("bad_schema", f"not a regular expression: {said}{place}") from None
    except (OverflowError, RecursionError, ValueError) as error:
        raise ConstraintError("bad_schema", f"not a regular expression: {_one_line(str(error))}") from None
    flags = tree.state.flags
    writer = _Writer(scanned, ecma=ecma)
    if flags & re.MULTILINE:
        writer.refuse("the flag (?m)", ("(?m",))
    items = list(tree)
    while len(items) == 1 and items[0][0] is op.SUBPATTERN:
        _, add, remove, inner = items[0][1]
        flags = (flags | add) & ~remove
        items = list(inner)
    return writer, items, flags


def _look_aheads(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """(look-aheads at the very start, the rest)."""
    at = 0
    ahead: list[Item] = []
    while at < len(items):
        code, argument = items[at]
        if code in (op.ASSERT, op.ASSERT_NOT) and argument[0] == 1:
            ahead.append(items[at])
        elif code is not op.AT or argument not in _STARTS:
            break
        at += 1
    if not ahead:
        return [], list(items)
    return ahead, list(items[at:])


_REFUSALS: Final = {
    op.ASSERT: ("look-around", ("(?=", "(?<=")),
    op.ASSERT_NOT: ("negative look-around", ("(?!", "(?<!")),
    op.FAILURE: ("a look-ahead that never holds", ("(?!",)),
    op.GROUPREF: ("a back-reference", ("(?P=", *(f"\\{digit}" for digit in range(1, 10)))),
    op.GROUPREF_EXISTS: ("a conditional group", ("(?(",)),
    op.ATOMIC_GROUP: ("an atomic group", ("(?>",)),
    op.POSSESSIVE_REPEAT: ("a possessive quantifier", ("possessive",)),
}
_ANCHOR_NAMES: Final = {
    op.AT_BEGINNING: ("^ inside the pattern", ("^",)),
    op.AT_BEGINNING_STRING: ("\\A inside the pattern", ("\\A",)),
    op.AT_END: ("$ inside the pattern", ("$",)),
    op.AT_END_STRING: ("\\Z inside the pattern", ("\\Z", "\\z")),
    op.AT_BOUNDARY: ("a word boundary \\b", ("\\b",)),
    op.AT_NON_BOUNDARY: ("\\B", ("\\B",)),
}


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes parts of the tree in the engine's dialect."""

    scanned: Scanned
    ecma: bool

    def refuse(self, what: str, texts: tuple[str, ...], *, inside: bool = False) -> NoReturn:
        position = self.scanned.position(texts, inside=inside)
        place = "" if position is None else f" at position {position}"
        raise ConstraintError("unsupported_schema", f"{what}{place} is not enforced in a regular expression")

    def look_ahead(self, item: Item, flags: int) -> str:
        code, (_, inner) = item
        num_open, num_wide = _spread(inner)
        if code is op.ASSERT_NOT and num_open and num_wide > MAX_SPREAD:
            self.refuse(f"a negative look-ahead of more than {MAX_SPREAD} positions behind a star", ("(?!",))
        text = self.sequence(inner, flags, "", _ANYTHING, end_of_line=r"\x{A}?")
        return f"{'~' if code is op.ASSERT_NOT else ''}/{text or '(?:)'}/"

    def sequence(
        self,
        items: Sequence[Item],
        flags: int,
        left: str | None,
        right: str | None,
        *,
        count: int = 1,
        end_of_line: str = "",
    ) -> str:
        """`left` and `right` stand for what precedes and follows where this sequence is at an end of the
        pattern, and are None elsewhere; an anchor there takes their place. `end_of_line`: what `$` lets
        follow."""
        items = list(items)
        while left is not None and items and items[0][0] is op.AT and items[0][1] in _STARTS:
            left = ""
            del items[0]
        while right is not None and items and items[-1][0] is op.AT and items[-1][1] in _ENDS:
            is_line = items[-1][1] is op.AT_END and right != ""
            right = end_of_line if is_line else ""
            del items[-1]
        if not items:
            return (left or "") + (right or "")
        last = len(items) - 1
        return "".join(
            self._item(
                item, flags, left if i == 0 else None, right if i == last else None, count, end_of_line
            )
            for i, item in enumerate(items)
        )

    def _item(
        self, item: Item, flags: int, left: str | None, right: str | None, count: int, end_of_line: str
    ) -> str:
        code, argument = item
        if code is op.BRANCH:
            parts = [
                self.sequence(part, flags, left, right, count=count, end_of_line=end_of_line)
                for part in argument[1]
            ]
            return f"(?:{'|'.join(parts)})"
        if code is op.SUBPATTERN:
            _, add, remove, inner = argument
            flags = (flags | add) & ~remove
            if flags & re.MULTILINE:
                self.refuse("the flag (?m)", ("(?m",))
            return f"(?:{self.sequence(inner, flags, left, right, count=count, end_of_line=end_of_line)})"
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            return self._repeat(argument, flags, left, right, count, end_of_line)
        return (left or "") + self._single(item, flags) + (right or "")

    def _repeat(
        self, argument: Any, flags: int, left: str | None, right: str | None, count: int, end_of_line: str
    ) -> str:
        low, high, inner = argument
        is_open = high is op.MAXREPEAT
        count *= max(1, low if is_open else high)
        if count > MAX_COUNT:
            raise ConstraintError(
                "unsupported_schema",
                f"repeats that stand in each other come to more than {MAX_COUNT:,} in a regular expression",
            )
        at_an_end = left is not None or right is not None
        if at_an_end and high == 1 and _has_anchor(inner):
            once = self.sequence(inner, flags, left, right, count=count, end_of_line=end_of_line)
            never = f"|{left or ''}{right or ''}" if low == 0 else ""
            return f"(?:{once}{never})"
        text = self.sequence(inner, flags, None, None, count=count)
        counts = f"{{{low},{'' if is_open else high}}}"
        return f"{left or ''}(?:{text}){counts}{right or ''}"

    # ---- one character ------------------------------------------------------------------------------------

    def _single(self, item: Item, flags: int) -> str:
        code, argument = item
        if code is op.LITERAL:
            return self._set([item], flags, negated=False)
        if code is op.NOT_LITERAL:
            return self._set([(op.LITERAL, argument)], flags, negated=True)
        if code is op.ANY:
            if flags & re.DOTALL:
                return "(?s:.)"
            return r"[^\x{A}\x{D}\x{2028}\x{2029}]" if self.ecma else r"[^\x{A}]"
        if code is op.IN:
            negated = argument[0][0] is op.NEGATE
            return self._set(argument[1:] if negated else argument, flags, negated=negated)
        if code is op.AT:
            what, texts = _ANCHOR_NAMES[argument]
            self.refuse(what, texts, inside=True)
        what, texts = _REFUSALS.get(code, (str(code).lower(), ()))
        if code in (op.ASSERT, op.ASSERT_NOT):
            behind = argument[0] < 0
            what = what.replace("around", "behind" if behind else "ahead")
            texts = texts[1:] if behind else texts[:1]
            what += "" if behind else " that does not stand at the start"
        self.refuse(what, texts)

    def _set(self, members: Sequence[Item], flags: int, *, negated: bool) -> str:
        ranges: charset.Ranges = []
        classes: list[str] = []
        for code, argument in members:
            if code is op.LITERAL:
                prop = self.scanned.properties.get(argument)
                if prop is None:
                    ranges.append((argument, argument))
                else:
                    classes.append(self._category(prop.category, prop.negated, flags))
            elif code is op.RANGE:
                if not self.scanned.properties.keys().isdisjoint(argument):
                    raise ConstraintError("bad_schema", "not a regular expression: a category bounds a range")
                ranges.append(argument)
            else:
                kind, is_not = _KINDS[argument]
                classes.append(self._class(kind, flags, is_not=is_not, narrow=is_not == negated))
        if flags & re.IGNORECASE:
            ranges = charset.ignoring_case(ranges, ascii_only=bool(flags & re.ASCII))
        content = charset.spelled(charset.union(ranges)) + "".join(classes)
        return f"[{'^' if negated else ''}{content}]"

    def _category(self, name: str, negated: bool, flags: int) -> str:
        if flags & re.IGNORECASE and len(name) == 2 and name[0] == "L":
            self.refuse(f"\\p{{{name}}} together with (?i)", ("(?i",))
        inner = charset.category(name)
        return f"[^{inner}]" if negated else inner

    def _class(self, kind: str, flags: int, *, is_not: bool, narrow: bool) -> str:
        """`narrow`: of what Python and ECMA-262 mean, what is in both; else what is in either."""
        content = _ascii_class(kind) if flags & re.ASCII else _unicode_class(kind)
        if self.ecma:
            content = _ecma_class(kind, flags, narrow=narrow)
        return f"[^{content}]" if is_not else content


def _ascii_class(kind: str) -> str:
    sets = {_DIGIT: charset.ASCII_DIGITS, _WORD: charset.ASCII_WORD, _SPACE: charset.ASCII_SPACES}
    return charset.spelled(sets[kind])


def _unicode_class(kind: str) -> str:
    if kind == _SPACE:
        return charset.spelled(charset.PYTHON_SPACES)
    return charset.unicode_digit() if kind == _DIGIT else charset.unicode_word()


def _ecma_class(kind: str, flags: int, *, narrow: bool) -> str:
    if kind != _SPACE:
        return _ascii_class(kind) if narrow or flags & re.ASCII else _unicode_class(kind)
    python = charset.ASCII_SPACES if flags & re.ASCII else charset.PYTHON_SPACES
    both = charset.common if narrow else charset.union
    return charset.spelled(both(python, charset.ECMA_SPACES))


def _spread(items: Sequence[Item]) -> tuple[int, int]:
    """(repeats without an end, positions that take more than one character). Both together in a pattern that
    is to be excluded cost the engine states that double with each position."""
    num_open = num_wide = 0
    for code, argument in items:
        if code in (op.ANY, op.IN, op.NOT_LITERAL):
            num_wide += 1
        elif code is op.BRANCH:
            inner = [_spread(part) for part in argument[1]]
            num_open += sum(part[0] for part in inner)
            num_wide += max(part[1] for part in inner)
        elif code is op.SUBPATTERN:
            more = _spread(argument[3])
            num_open, num_wide = num_open + more[0], num_wide + more[1]
        elif code in (op.MAX_REPEAT, op.MIN_REPEAT):
            low, high, part = argument
            more = _spread(part)
            is_open = high is op.MAXREPEAT
            num_open += more[0] + is_open
            num_wide += more[1] * (low if is_open else high)
    return num_open, num_wide


def _has_anchor(items: Sequence[Item]) -> bool:
    for code, argument in items:
        if code is op.AT:
            return True
        if code is op.BRANCH and any(_has_anchor(part) for part in argument[1]):
            return True
        if code is op.SUBPATTERN and _has_anchor(argument[3]):
            return True
        if code in (op.MAX_REPEAT, op.MIN_REPEAT) and _has_anchor(argument[2]):
            return True
    return False
