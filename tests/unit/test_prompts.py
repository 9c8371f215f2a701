import pytest

from deepinfer_cli.prompts.render import ChatRenderer
from deepinfer_cli.prompts.template import ChatTemplate
from deepinfer_cli.prompts.types import PromptError, PromptInput
from deepinfer_cli.tokenizer.gguf import gguf_tokenizer
from tests.support.tiny_tokenizer import CHAT_TEMPLATE, gguf_metadata

USER = {"role": "user", "content": "Hi"}


def renderer(template: str | None = CHAT_TEMPLATE, **metadata):
    tokenizer = gguf_tokenizer(gguf_metadata(**metadata))
    chat = None if template is None else ChatTemplate(template, {"bos_token": "<|im_start|>"})
    return ChatRenderer(tokenizer, chat, tokenizer.vocab_size)


def text_of(template: str, **prompt):
    return renderer(template).render(PromptInput(**prompt)).text


def test_messages_become_the_models_own_text_and_tokens():
    rendered = renderer().render(PromptInput(messages=[USER]))
    assert rendered.text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert (
        rendered.token_ids[0] == 1 and rendered.token_ids.count(1) == 2 and rendered.token_ids.count(2) == 1
    )
    assert rendered.warnings == ()


def test_chat_sends_the_prompt_as_one_user_message_after_the_system_text():
    rendered = renderer().render(PromptInput(text="Hi", chat=True, system="Be brief."))
    assert rendered.text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_there_is_never_more_than_one_system_message():
    own = [{"role": "system", "content": "mine"}, USER]
    rendered = renderer().render(PromptInput(messages=own, system="the run's"))
    assert rendered.text.count("system") == 1 and "mine" in rendered.text


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize("text", ["", "hello", "<|im_start|>hello"])
def test_raw_text_gets_bos_once_where_the_model_wants_it(adds_bos, text):
    rendered = renderer(add_bos_token=adds_bos).render(PromptInput(text=text))
    spelled = text.startswith("<|im_start|>")
    assert rendered.num_bos == (1 if adds_bos or spelled else 0)
    assert (rendered.token_ids == []) == (text == "" and not adds_bos)


def test_template_text_gets_no_bos_added_and_two_are_reported():
    assert renderer(add_bos_token=True).render(PromptInput(messages=[USER])).num_bos == 1
    doubled = renderer("{{ bos_token }}" + CHAT_TEMPLATE).render(PromptInput(messages=[USER]))
    assert doubled.num_bos == 2 and doubled.warnings == ("double_bos",)


def test_given_token_ids_pass_unchanged_or_are_refused_with_their_place():
    assert renderer(add_bos_token=True).render(PromptInput(token_ids=[5, 6])).token_ids == [5, 6]
    with pytest.raises(PromptError) as caught:
        renderer().render(PromptInput(token_ids=[1, 10_000]))
    assert caught.value.field == "prompt_token_ids[1]" and "0 to 268" in caught.value.message


@pytest.mark.parametrize("said", ["Well, ", "Well", " Well", "Well\n"])
def test_the_last_message_is_continued_where_it_ends(said):
    turns = [USER, {"role": "assistant", "content": said}]
    rendered = renderer().render(PromptInput(messages=turns, continue_final_message=True))
    assert rendered.text == f"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{said}"


def test_continuing_under_a_trimming_template_ends_without_a_space():
    trimming = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}[/]{% endfor %}"
    turns = [USER, {"role": "assistant", "content": "Well, "}]
    assert text_of(trimming, messages=turns, continue_final_message=True) == "[user]Hi[/][assistant]Well,"


def test_a_template_that_hides_the_last_message_cannot_be_continued():
    turns = [USER, {"role": "assistant", "content": "x"}]
    with pytest.raises(PromptError, match="does not show the last message"):
        text_of("{{ messages[0].content }}", messages=turns, continue_final_message=True)


def test_tools_reach_templates_that_know_them_and_are_refused_elsewhere():
    tools = [{"type": "function", "function": {"name": "f"}}]
    knows = "{% if tools %}{{ tools | tojson }}{% endif %}{{ messages[0].content }}"
    assert text_of(knows, messages=[USER], tools=tools) == (
        '[{"type": "function", "function": {"name": "f"}}]Hi'
    )
    assert text_of(knows, messages=[USER], tools=tools, tool_choice="none") == "Hi"
    assert text_of(CHAT_TEMPLATE, messages=[USER], tools=tools, tool_choice="none").endswith("assistant\n")
    with pytest.raises(PromptError) as caught:
        text_of(CHAT_TEMPLATE, messages=[USER], tools=tools)
    assert caught.value.field == "tools"


def test_arguments_of_earlier_tool_calls_are_decoded_for_the_template():
    template = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments.x }}{% endfor %}{% endfor %}"
    )
    call = {"type": "function", "function": {"name": "f", "arguments": '{"x": 41}'}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert text_of(template, messages=[USER, turn, USER]) == "41"
    call["function"]["arguments"] = "{x"
    with pytest.raises(PromptError, match="not JSON"):
        text_of(template, messages=[USER, turn, USER])


def test_block_tags_swallow_their_line_as_templates_expect():
    template = (
        "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\nend"
    )
    assert text_of(template, messages=[USER, USER]) == "Hi\nHi\nend"


def test_a_row_depends_on_its_inputs_only():
    dated = "{% if strftime_now is defined %}{{ strftime_now('%d') }}{% else %}no date{% endif %}"
    assert text_of(dated, messages=[USER]) == "no date"
    with pytest.raises(PromptError, match="chat_template_kwargs"):
        text_of("{{ strftime_now('%d %b %Y') }}", messages=[USER])
    assert text_of("{{ date }}", messages=[USER], template_kwargs={"date": "1 May"}) == "1 May"
    with pytest.raises(ValueError, match="random"):
        ChatTemplate("{{ [1, 2] | random }}", {})


def test_a_row_cannot_replace_what_the_template_gets_from_us():
    with pytest.raises(PromptError, match="set by deepinfer"):
        text_of(CHAT_TEMPLATE, messages=[USER], template_kwargs={"messages": []})


def test_a_template_may_refuse_a_conversation():
    template = "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}"
    with pytest.raises(PromptError, match="system first"):
        text_of(template, messages=[USER])


def test_messages_without_a_template_are_refused():
    for prompt in (PromptInput(messages=[USER]), PromptInput(text="x", chat=True)):
        with pytest.raises(PromptError, match="no chat template"):
            renderer(None).render(prompt)
    assert not renderer(None).has_template
    assert renderer(None).render(PromptInput(text="hello")).text == "hello"


def test_a_lone_surrogate_is_an_error_of_its_row():
    with pytest.raises(PromptError) as caught:
        renderer().render(PromptInput(text="\ud83d"))
    assert caught.value.code == "bad_encoding"
