"""The fixed texts are what they claim to be, and their positions follow from the rule alone."""

from collections import Counter

from tests.support.fixed_texts import (
    FIRST_CANDIDATE,
    MIN_TOKENS,
    NUM_POSITIONS,
    choose_positions,
    load_texts,
    read_sections,
    source_of,
)


def test_fifty_texts_of_three_kinds():
    texts = load_texts()
    assert Counter(t.kind for t in texts) == {"prose": 18, "code": 16, "chat": 16}
    assert len({t.name for t in texts}) == 50
    assert len({t.tokens for t in texts}) == 50
    for kind in ("prose", "code", "chat"):
        sources = read_sections(source_of(kind))
        assert [t.name for t in texts if t.kind == kind] == list(sources)
        assert all(sources[t.name] in t.text for t in texts if t.kind == kind)


def test_every_text_is_long_enough_without_its_header():
    for text in load_texts():
        assert len(text.tokens) - text.num_header >= MIN_TOKENS, text.name


def test_headers_are_what_chats_share():
    chats = [t for t in load_texts() if t.kind == "chat"]
    header = chats[0].tokens[: chats[0].num_header]
    assert len(header) > 8
    assert all(t.tokens[: t.num_header] == header for t in chats)
    assert len({t.tokens[t.num_header : t.num_header + 16] for t in chats}) == len(chats)
    assert all(t.num_header == 0 for t in load_texts() if t.kind != "chat")


def test_positions_follow_from_the_rule():
    for text in load_texts():
        assert text.positions == choose_positions(text.name, text.num_header, len(text.tokens)), text.name
        assert len(set(text.positions)) == NUM_POSITIONS
        assert min(text.positions) >= text.num_header + FIRST_CANDIDATE
        assert max(text.positions) < len(text.tokens)
