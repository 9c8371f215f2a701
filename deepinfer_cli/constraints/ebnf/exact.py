"""The form of a grammar in which the engine reads one character at a time: exact by construction, and slow
where most of the vocabulary may follow."""

from __future__ import annotations

from deepinfer_cli.constraints.ebnf.charset import one
from deepinfer_cli.constraints.ebnf.emit import Part, Parts, Run, refuse_too_large
from deepinfer_cli.constraints.ebnf.grammar import Chars, Grammar, Minus, Seq, Text, moved


def char_exact(grammar: Grammar) -> Parts:
    refuse_too_large(sum(len(node.text) if isinstance(node, Text) else 1 for node in grammar.nodes))
    parts: list[Part] = []
    new_index: list[int] = []
    for node in grammar.nodes:
        match node:
            case Text() if len(node.text) == 1:
                parts.append(Run(one(node.text)))
            case Text():
                first = len(parts)
                parts.extend(Run(one(char)) for char in node.text)
                parts.append(Seq(tuple(range(first, len(parts)))))
            case Chars():
                parts.append(Run(node.chars))
            case Minus():
                raise AssertionError("not a checked grammar")
            case _:
                parts.append(moved(node, new_index))
        new_index.append(len(parts) - 1)
    rules = {name: new_index[rule.body] for name, rule in grammar.rules.items()}
    return Parts(grammar.start, parts, rules)
