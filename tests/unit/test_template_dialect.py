"""The budgeted sandbox renders what the plain one renders: templates in the manner of published ones."""

import json
import random

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from deepinfer_cli.prompts.template import ChatTemplate

TEMPLATES = {
    "headers and trimming": """
{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start|>system<|end|>\\n\\nToday Date: " + date_string + "\\n\\n" + system_message + "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|end|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' + (tool_call.arguments | tojson) + "}" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>\\n\\n' }}
{%- endif %}
""",
    "tools, namespaces and thinking": """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if '</think>' in content %}
        {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- if loop.index0 > ns.last or loop.last %}
        {{- '<|im_start|>' + message.role + '\\n<think>\\n' + (reasoning or 'none') }}
        {{- '\\n</think>\\n' + content }}
    {%- else %}
        {{- '<|im_start|>' ~ message.role ~ '\\n' ~ content }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
""",
    "macros, breaks and dictionaries": """
{% macro show(value, depth=0) -%}
{% if value is mapping %}
{% for key, item in value.items() %}{{ ' ' * depth }}{{ key }}:{{ show(item, depth + 1) }}
{% endfor %}{% elif value is sequence and value is not string %}{{ value | map('string') | join(', ') }}
{%- else %}{{ value | upper }}{% endif %}
{%- endmacro %}
{% for message in messages %}
{% if message.role == 'tool' %}{% continue %}{% endif %}
{% if loop.index > 4 %}{% break %}{% endif %}
{{ loop.index }}/{{ loop.length }} {{ loop.cycle('a', 'b') }} {{ show(message) }}
{% endfor %}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | length }}
{{ messages | groupby('role') | map('first') | join('|') }} {{ {'b': 1, 'a': [1, 2]} | tojson(indent=2) }}
{{ "%s has %d" | format(messages[-1].role, messages | length) }}
{{ 7 // 2 }} {{ 7 % 4 }} {{ 2 ** 5 }} {{ 1 / 4 }}
""",
}
CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": "sky", "n": 2}}}


def plain_environment():
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(
        value, ensure_ascii=False, indent=indent
    )
    return environment


def conversation(chance):
    words = [
        "hello",
        " world ",
        "\n",
        "<think>",
        "</think>",
        "caf\u00e9",
        "<b>&",
        "\U0001f525",
        "{{ 1 }}",
        "",
    ]
    turns = []
    for _ in range(chance.randrange(1, 7)):
        turn = {"role": chance.choice(["system", "user", "assistant", "tool"])}
        turn["content"] = "".join(chance.choices(words, k=chance.randrange(0, 6)))
        if turn["role"] == "assistant" and chance.random() < 0.3:
            turn["tool_calls"] = [CALL]
        turns.append(turn)
    return turns


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_the_same_text_as_without_a_budget(source):
    ours = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    plain = plain_environment().from_string(source)
    chance = random.Random(11)
    for _ in range(200):
        messages = conversation(chance)
        tools = [{"type": "function", "function": {"name": "look"}}] if chance.random() < 0.5 else None
        wanted = plain.render(
            messages=messages,
            tools=tools,
            documents=None,
            add_generation_prompt=True,
            bos_token="<s>",
            eos_token="</s>",
        )
        assert ours.render(messages, tools=tools) == wanted, messages


def test_the_plain_environment_is_not_ours():
    """Guards the comparison above: the plain one lacks the budget."""
    text = plain_environment().from_string("{{ 'a' * 100000 }}").render()
    assert len(text) == 100000
    with pytest.raises(jinja2.exceptions.SecurityError):
        plain_environment().from_string("{{ x.append(1) }}").render(x=[])
