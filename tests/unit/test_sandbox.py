"""Templates that ask for the world: refused in bounded time and memory, never with a crash."""

import pytest

from deepinfer_cli.prompts.budget import TemplateLimit
from deepinfer_cli.prompts.sandbox import chat_environment

HOSTILE = {
    "nested loops": "{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}",
    "doubling": "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "joining": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "repetition": "{{ 'a' * 1000000000000 }}",
    "power": "{{ 2 ** 100000000 }}",
    "squaring": "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "ljust": "{{ 'a'.ljust(10000000000) }}",
    "bytes ljust": "{{ 'a'.encode().ljust(10000000000) }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "computed width": "{{ '%*d' % (1000000000, 1) }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "format of format": "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "format filter": "{{ '%0999999999d' | format(1) }}",
    "center": "{{ 'a' | center(100000000000) }}",
    "indent": "{{ 'a\n' | indent(10000000000, true) }}",
    "replace": "{{ ('a' * 1000).replace('a', 'b' * 100000) }}",
    "replace filter": "{{ ('a' * 1000) | replace('a', 'b' * 100000) }}",
    "join of a generator": "{{ ('b' * 1000000).join(range(10000) | map('string')) }}",
    "shared list": "{{ ['b' * 1000000] * 10000 }}",
    "shared list as text": "{{ (['b' * 1000000] * 10000) | string | length }}",
    "shared list in JSON": "{{ (['b' * 1000000] * 10000) | tojson | length }}",
    "percent s": "{{ '%s' % (['b' * 1000000] * 10000) }}",
    "macro recursion": "{% macro f(n) %}{% if n < 30 %}"
    "{{ f(n+1) }}{{ f(n+1) }}{% endif %}{% endmacro %}{{ f(0) }}",
    "deep compare": "{% set n = namespace(a=[0], b=[0]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}"
    "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}",
    "rounding": "{{ 1.5 | round(1000000000) }}",
    "to_bytes": "{{ (1).to_bytes(10000000000, 'big') }}",
    "slices of a text": "{% set a = 'a' * 1000000 %}{% for i in range(999) %}{% set b = a[1:] %}{% endfor %}",
    "slices of a list": "{% set a = [1] * 99999 %}{% for i in range(99999) %}{% set b = a[1:] %}{% endfor %}",
    "copies of a list": "{% set a = [1] * 99999 %}{% for i in range(999) %}{% if a.copy() %}{% endif %}"
    "{% endfor %}",
    "searches": "{% set a = 'a' * 900000 %}{% for i in range(2000) %}{% if 'b' in a %}{% endif %}"
    "{% endfor %}",
    "tests in filters": "{% set a = range(9999)|list %}{% for i in range(999) %}"
    "{% set b = a|select('in', a)|list %}{% endfor %}",
    "growing map": "{% set n = namespace(d={}) %}{% for i in range(99999) %}"
    "{% set n.d = dict(n.d, **{i|string: i}) %}{% endfor %}",
    "big list": "{{ [1] * 60000000 }}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_template_hits_a_limit(source):
    environment = chat_environment()
    with pytest.raises(TemplateLimit):
        environment.run(environment.from_string(source), {}, 1 << 20)


COMPILING = {
    "loops in loops": ("{% for a in [1] %}" * 25 + "{% endfor %}" * 25, "nested"),
    "blocks in blocks": ("{% if a %}" * 65 + "{% endif %}" * 65, "nests deeper than 60 levels"),
    "thousands of blocks": ("{% if a %}" * 9000 + "{% endif %}" * 9000, "nests too deeply"),
    "parentheses": ("{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}", "nests too deeply"),
    "operators": ("{{ a" + " + a" * 900 + " }}", "nests"),
    "parts": ("{{ a" + "~a" * 30_000 + " }}", "10,000 parts"),
    "macros": ("{% macro a() %}{% endmacro %}" * 9000, "10,000 parts"),
    "length": (" " * 300_000, "longer than 262144 characters"),
    "a number": ("{{ " + "9" * 5000 + " }}", "limit"),
    "break without a loop": ("{% break %}", "outside loop"),
    "an endless name": ("{% " + "x" * 200_000 + " %}", r"line 1: .*\.\.\."),
    "syntax": ("{{ a + }}", "line 1: "),
}


@pytest.mark.parametrize(("source", "said"), COMPILING.values(), ids=COMPILING.keys())
def test_what_is_too_large_to_compile_is_refused_in_one_sentence(source, said):
    with pytest.raises(ValueError, match=said) as refused:
        chat_environment().load(source)
    assert len(str(refused.value)) < 400 and "\n" not in str(refused.value)


def test_a_loop_that_is_charged_nothing_still_has_a_clock(monkeypatch):
    from deepinfer_cli.prompts import budget

    environment = chat_environment()
    template, _ = environment.load("{% for i in range(99) %}{% set a = 1 %}{% endfor %}")
    monkeypatch.setattr(budget, "MAX_SECONDS", -1.0)
    with pytest.raises(TemplateLimit, match="seconds"):
        environment.run(template, {}, 1000)


def test_output_is_bounded_while_it_is_made():
    environment = chat_environment()
    template = environment.from_string("{% for i in range(1000) %}{{ 'x' * 100 }}{% endfor %}")
    assert len(environment.run(template, {}, 100_000)) == 100_000
    with pytest.raises(TemplateLimit, match="more than 99999 characters"):
        environment.run(template, {}, 99_999)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages.__init__.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_nothing_outside_the_template_can_be_reached_or_changed(source):
    import jinja2

    environment = chat_environment()
    with pytest.raises((jinja2.TemplateError, TypeError)):
        environment.run(environment.from_string(source), {"messages": []}, 1000)


def test_ordinary_expressions_keep_their_meaning():
    source = (
        "{{ 1.26|round }} {{ [1, 2]|sum }} {{ ['a', 'b']|join(', ') }} {{ [{'a': 1}]|join(attribute='a') }}"
        " {{ {'b': 1, 'a': 2}|dictsort }} {{ 'ab'|replace('a', 'c') }} {{ '%s=%d' % ('a', 1) }} "
        "{{ '{}'.format(3) }} {{ 'a' in ['a'] }} {{ 1 < 2 < 3 }} {{ 'a' ~ 1 ~ none }} "
        "{% for x in [3, 1]|sort|map('string') %}{{ x }}{{ ',' if not loop.last }}{% endfor %} "
        "{% generation %}g{% endgeneration %} {{ x|tojson }}{% for k, v in x.items() %} {{ k }}{% endfor %}"
        "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %} {{ loop.length }}{% endfor %}"
        "{% for x in missing %}never{% endfor %}"
    )
    environment = chat_environment()
    assert environment.run(environment.from_string(source), {"x": {"k": "é<"}}, 1000) == (
        "1.0 3 a, b 1 [('a', 2), ('b', 1)] cb a=1 3 True True a1None 1,3 g {\"k\": \"é<\"} k 3 3"
    )
