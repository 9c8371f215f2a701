"""Which notation a grammar is written in, where nobody says."""

from __future__ import annotations

import re

from deepinfer_cli.constraints.ebnf.gbnf import START
from deepinfer_cli.constraints.types import ConstraintError

_TOKENS = re.compile(
    r"""(?P<quoted>"(?:[^"\\\n]|\\.)*+")|(?P<w3c>'[^'\n]*+'|\#x[0-9A-Fa-f]|/\*)|(?P<comment>\#[^\n]*+)"""
    r"""|(?P<class>\[\^?+\[?+(?:[^\[\]\\\n]|\\.)*+\])|(?P<define>::=)"""
)
_LARK_RULE = re.compile(r"^[?!]?[A-Za-z_]\w*+(?:\.\d++)?+(?:\[[^\]\n]*+\])?+[ \t]*+:(?![:=])|^%[a-z]", re.M)
_ROOT = re.compile(rf"^[ \t]*+{START}[ \t]*+::=", re.M)


def detect(text: str) -> str:
    """gbnf, w3c, iso or lark; refuses to guess where the same text has two meanings."""
    is_w3c = escapes = defines = False
    for found in _TOKENS.finditer(text):
        is_w3c |= found.lastgroup == "w3c" or (found.lastgroup == "class" and "#x" in found[0])
        defines |= found.lastgroup == "define"
        escapes |= found.lastgroup in ("quoted", "class") and "\\" in found[0]
    if not defines:
        if _LARK_RULE.search(text):
            return "lark"
        if "=" in text:
            return "iso"
        raise ConstraintError(
            "bad_schema", "the grammar has no rule: neither '::=' nor 'name:' nor 'name = … ;' is in it"
        )
    is_gbnf = _ROOT.search(text) is not None
    if is_gbnf != is_w3c and not (is_w3c and escapes):
        return "gbnf" if is_gbnf else "w3c"
    if not escapes:
        return "w3c"  # a root that uses what only W3C's has, or no root and nothing that differs
    raise ConstraintError(
        "bad_schema",
        "the grammar could be GBNF or W3C EBNF, which read it differently: say which one it is "
        "(grammar_syntax: gbnf or w3c)",
    )
