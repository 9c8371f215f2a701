"""A checked grammar written out as GBNF that llama.cpp, xgrammar and our own reader take alike."""

from __future__ import annotations

from deepinfer_cli.constraints.ebnf.charset import Charset
from deepinfer_cli.constraints.ebnf.grammar import Alt, Chars, Grammar, Ref, Repeat, Seq, Text


def gbnf_text(grammar: Grammar) -> str:
    """Each node is a rule of its own."""
    called = {
        name: "root" if name == grammar.start else f"rule{number}"
        for number, name in enumerate(grammar.rules)
    }
    names = {rule.body: called[name] for name, rule in grammar.rules.items()}
    symbols: list[str] = []
    lines: list[str] = []
    for index, node in enumerate(grammar.nodes):
        match node:
            case Text():
                written = '"' + "".join(_escaped(ord(char)) for char in node.text) + '"'
            case Chars():
                written = _class(node.chars)
            case Ref():
                written = called[node.name]
            case Seq():
                written = " ".join(symbols[item] for item in node.items) or '""'
            case Alt():
                written = " | ".join(symbols[item] for item in node.items)
            case Repeat():
                high = "" if node.high is None else node.high
                written = f"{symbols[node.item]}{{{node.low},{high}}}"
            case _:
                raise ValueError("not a checked grammar")
        symbols.append(names.get(index, f"part{index}"))
        lines.append(f"{symbols[-1]} ::= {written}")
    return "\n".join(lines) + "\n"


def _escaped(point: int) -> str:
    return f"\\U{point:08x}" if point > 0xFFFF else f"\\u{point:04x}"


def _class(chars: Charset) -> str:
    return "[" + "".join(f"{_escaped(low)}-{_escaped(high)}" for low, high in chars) + "]"
