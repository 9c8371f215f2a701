"""Jinja for templates that come from strangers: the immutable sandbox, with a budget and no clock or dice.

The sandbox keeps a template away from Python's attributes. It does not stop a template from looping for
ever or doubling a string until memory is gone, so three more fences stand here:

* every loop, call, operator, slice, filter and output is charged to a budget of steps, characters and wall
  time (loops, comparisons, slices and `~` by rewriting the parsed template, the rest through the sandbox's
  own hooks);
* operations whose result is much larger than their arguments are refused before they run;
* a template of many or deeply nested parts is refused before Python has to compile it;
* what would make a row depend on more than its inputs is not there: `random`, `lipsum`, the date.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, cast

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from deepinfer_cli.errors import in_short
from deepinfer_cli.prompts.budget import (
    MAX_TEMPLATE_BYTES,
    MAX_WIDTH,
    Budget,
    TemplateLimit,
    check_binop,
    check_format,
    check_method,
    check_width,
    joined_size,
    replaced_size,
    size_of,
)

MAX_TEMPLATE_PARTS = 10_000  # nodes of the parsed template
MAX_TEMPLATE_STATEMENTS = 2_000  # compiling takes time that grows with the square of them
MAX_TEMPLATE_DEPTH = 60  # and recurses, at several frames a level

_SCANNED_AT_ONCE = 16  # characters that a comparison gets through in the time that making one takes

_REMOVED_FILTERS = ("random", "batch", "slice", "xmlattr", "urlize", "wordwrap")
_REMOVED_GLOBALS = ("lipsum", "cycler", "joiner")
# Filters that hand their input on without looking inside its entries: charged where it is used.
_STRUCTURAL = {
    *("list", "map", "select", "reject", "selectattr", "rejectattr", "first", "last", "length", "count"),
    *("reverse", "items", "default", "d", "attr"),
}
_COMPARING_TESTS = (
    *("in", "eq", "equalto", "==", "ne", "!=", "lt", "lessthan", "<", "le", "<="),
    *("gt", "greaterthan", ">", "ge", ">="),
)


class Environment(ImmutableSandboxedEnvironment):
    """Compiles untrusted templates; run() renders them under the budget."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])

    def __init__(self, **options: Any) -> None:
        self.budget = Budget()
        super().__init__(autoescape=False, finalize=self._finalize, **options)
        for name in _REMOVED_FILTERS:
            self.filters.pop(name, None)
        for name in _REMOVED_GLOBALS:
            self.globals.pop(name, None)
        self.globals["range"] = self._range
        self.globals["raise_exception"] = _raise_exception
        self.filters["tojson"] = _tojson
        self.filters["sum"] = _sum
        for name, function in list(self.filters.items()):
            if name not in _STRUCTURAL:
                self.filters[name] = _charged(function, _FILTER_CHECKS.get(name), self.budget)
        self.filters["join"] = self._join
        self.filters["_metered"] = self._metered
        self.filters["_looked_at"] = self._looked_at
        self.filters["_sliced"] = self._sliced
        for name in _COMPARING_TESTS:
            self.tests[name] = self._compared(cast(Callable[..., Any], self.tests[name]))
        self.filters["_joined"] = self._joined

    def load(self, source: str) -> tuple[jinja2.Template, set[str]]:
        """The compiled template, and the names it wants. Raises ValueError: the reason in one sentence."""
        try:
            return self.from_string(source), jinja2.meta.find_undeclared_variables(self.parse(source))
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"line {error.lineno}: {in_short(error.message or 'not a template')}") from None
        except jinja2.TemplateError as error:
            raise ValueError(in_short(str(error))) from None
        except (RecursionError, MemoryError):  # of Python's compiler
            raise ValueError("it nests too deeply") from None
        except SyntaxError as error:  # nested loops beyond what Python allows, or a break outside of one
            raise ValueError(error.msg) from None
        except Exception as error:  # constants are folded, and an expression can raise whatever it likes
            raise ValueError(in_short(f"{type(error).__name__}: {error}")) from None

    def run(self, template: jinja2.Template, names: Mapping[str, Any], max_chars: int) -> str:
        """The rendered text. Raises TemplateError, or whatever the template's expressions raise."""
        self.budget.restart()
        pieces: list[str] = []
        size = 0
        for piece in template.generate(names):
            pieces.append(piece)
            size += len(piece)
            if size > max_chars:
                raise TemplateLimit(f"the template makes more than {max_chars} characters")
        return "".join(pieces)

    # -- hooks of the sandbox -----------------------------------------------------------------------

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        size = check_binop(operator, left, right)
        repeats = (
            operator == "*" and not isinstance(left, (str, bytes)) and not isinstance(right, (str, bytes))
        )
        self.budget.charge(size if repeats else 1, size)  # an entry of a list takes more than a character
        if operator == "%":
            self.budget.charge_value(right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps str.format
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if name == "to_bytes":
            raise TemplateLimit("the template uses to_bytes()")
        size = 1
        if isinstance(owner, (str, bytes)):
            if name == "join" and args:
                args = (list(__self._turns(args[0])),)
            elif name in ("format", "format_map"):
                __self.budget.charge_value([args, kwargs])
            size = len(owner) + check_method(owner, name, args, kwargs)
        elif isinstance(owner, (list, tuple, dict)) and name not in ("get", "keys", "values", "items"):
            size = len(owner)
        elif __obj is dict:
            size = sum(map(size_of, (*args, kwargs)))
        __self.budget.charge(1, size)
        return super().call(__context, __obj, *args, **kwargs)

    def _finalize(self, value: Any) -> Any:
        self.budget.charge_value(value)
        return value

    def _range(self, *args: int) -> range:
        result = range(*args)
        self.budget.charge(len(result))
        return result

    # -- what the rewritten template calls ----------------------------------------------------------

    def _metered(self, iterable: Any) -> Any:
        """Charges a loop before it runs; what has no length is charged turn by turn."""
        if isinstance(iterable, (list, tuple, dict, str, range)):
            self.budget.charge(len(iterable))
            return _Loop(iterable, self.budget)
        return iterable if isinstance(iterable, jinja2.Undefined) else self._turns(iterable)

    def _turns(self, iterable: Iterable[Any]) -> Iterator[Any]:
        for item in iterable:
            self.budget.charge(1)
            yield item

    def _looked_at(self, value: Any) -> Any:
        if isinstance(value, (list, tuple, dict)):
            self.budget.charge_value(value)
        elif isinstance(value, (str, bytes)):
            self.budget.charge(0, len(value) // _SCANNED_AT_ONCE)
        return value

    def _compared(self, test: Callable[..., Any]) -> Callable[..., Any]:
        """A test as select() and its like call it, over and over without another look at the budget."""

        def compared(*args: Any) -> Any:
            self.budget.charge(1)
            return test(*map(self._looked_at, args))

        return compared

    def _sliced(self, value: Any) -> Any:
        self.budget.charge(1, size_of(value))
        return value

    def _joined(self, parts: list[Any]) -> str:
        self.budget.charge_value(parts)
        return "".join(part if isinstance(part, str) else str(part) for part in parts)

    def _join(self, value: Iterable[Any], d: Any = "", attribute: str | int | None = None) -> str:
        items = list(self._turns(value))
        if attribute is not None:
            items = [self.getitem(item, attribute) for item in items]
        self.budget.charge_value(items)
        texts = [str(item) for item in items]
        self.budget.charge(1, joined_size(str(d), texts))
        return str(d).join(texts)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_TEMPLATE_BYTES:
            raise TemplateLimit(f"the template is longer than {MAX_TEMPLATE_BYTES} characters")
        self.budget.restart()  # constants are folded while compiling
        tree = super()._parse(source, name, filename)
        _check_size(tree)
        _rewrite(tree)
        return tree


def chat_environment() -> Environment:
    """The dialect of chat templates: block tags swallow their line, loops know break and continue."""
    return Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )


class Generation(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's text for training; here it is plain."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


class _Loop:
    """What a loop walks over; a look at the clock in every turn, since its body may be charged nothing."""

    def __init__(self, items: Collection[Any], budget: Budget) -> None:
        self._items = items
        self._budget = budget

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._budget.charge(0)
            yield item


# -- the rewriting ----------------------------------------------------------------------------------


def _check_size(tree: nodes.Template) -> None:
    num_parts = num_statements = 0
    level: list[nodes.Node] = [tree]
    for _ in range(MAX_TEMPLATE_DEPTH):
        num_parts += len(level)
        num_statements += sum(isinstance(n, nodes.Stmt) and not isinstance(n, nodes.Output) for n in level)
        if num_parts > MAX_TEMPLATE_PARTS or num_statements > MAX_TEMPLATE_STATEMENTS:
            raise TemplateLimit(
                f"the template has more than {MAX_TEMPLATE_PARTS:,} parts or {MAX_TEMPLATE_STATEMENTS:,} "
                "statements"
            )
        level = [child for node in level for child in node.iter_child_nodes()]
        if not level:
            return
    raise TemplateLimit(f"the template nests deeper than {MAX_TEMPLATE_DEPTH} levels")


def _rewrite(node: nodes.Node) -> None:
    """Loops over `x` become loops over `x|_metered`, `a ~ b` becomes `[a, b]|_joined`, `a[1:]` becomes
    `a[1:]|_sliced`, and what is compared passes `_looked_at`."""
    for field, value in node.iter_fields():
        if isinstance(value, list):
            for i, item in enumerate(value):
                if isinstance(item, nodes.Node):
                    _rewrite(item)
                    value[i] = _replaced(item)
        elif isinstance(value, nodes.Node):
            _rewrite(value)
            setattr(node, field, _replaced(value))
    if isinstance(node, nodes.For):
        node.iter = _filter(node.iter, "_metered")  # type: ignore[arg-type]
    elif isinstance(node, (nodes.Compare, nodes.Operand)) and not isinstance(node.expr, nodes.Const):
        node.expr = _filter(node.expr, "_looked_at")


def _replaced(node: nodes.Node) -> nodes.Node:
    if isinstance(node, nodes.Concat):
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "_joined")
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _filter(node, "_sliced")
    return node


def _filter(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


# -- filters ----------------------------------------------------------------------------------------


def _raise_exception(message: Any) -> None:
    """Templates call this to refuse a conversation."""
    raise jinja2.TemplateError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As chat templates expect it: plain JSON, no HTML escapes."""
    if indent is not None and (not isinstance(indent, int) or indent > 16):
        raise TemplateLimit("the template indents JSON by more than 16")
    if separators is not None and sum(map(size_of, separators)) > 16:
        raise TemplateLimit("the template separates JSON by more than 16 characters")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _sum(value: Iterable[Any], start: float = 0) -> float:
    total = start
    for item in value:
        if not isinstance(item, (int, float)) or not isinstance(total, (int, float)):
            raise TemplateLimit("the template sums something other than numbers")
        total += item
    return total


def _check_center(value: Any, width: Any = 80) -> int:
    check_width(width)
    return MAX_WIDTH


def _check_indent(value: Any, width: Any = 4, *_: Any, **__: Any) -> int:
    pad = len(width) if isinstance(width, str) else width
    return (str(value).count("\n") + 1) * (pad if isinstance(pad, int) else 0)


def _check_replace(value: Any, old: Any, new: Any, *_: Any) -> int:
    return replaced_size(str(value), old, new)


def _check_format_filter(value: Any, *args: Any, **kwargs: Any) -> int:
    check_format(str(value))
    return sum(map(size_of, (*args, *kwargs.values())))


def _check_round(value: Any, precision: Any = 0, *_: Any, **__: Any) -> int:
    check_width(precision if isinstance(precision, int) and precision < 64 else MAX_WIDTH + 1)
    return 1


_FILTER_CHECKS: dict[str, Callable[..., int]] = {
    "center": _check_center,
    "indent": _check_indent,
    "replace": _check_replace,
    "format": _check_format_filter,
    "round": _check_round,
}


def _charged(function: Any, check: Callable[..., int] | None, budget: Budget) -> Any:
    """The filter, charged before it runs. A leading evaluation context is not part of its arguments."""
    marker = getattr(function, "jinja_pass_arg", None)
    first = 1 if marker is not None else 0

    def charged(*args: Any, **kwargs: Any) -> Any:
        budget.charge_value(args[first] if len(args) > first else None)
        if check is not None:
            budget.charge(1, check(*args[first:], **kwargs))
        return function(*args, **kwargs)

    if marker is not None:
        charged.jinja_pass_arg = marker  # type: ignore[attr-defined]
    return charged
