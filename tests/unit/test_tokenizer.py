import io
import json
import random
from pathlib import Path

import pytest

from deepinfer_cli.prompts.render import ChatRenderer
from deepinfer_cli.prompts.types import PromptError, PromptInput
from deepinfer_cli.tokenizer.byte_level import byte_of_character, spelled_bytes
from deepinfer_cli.tokenizer.folder import folder_eos_token_ids, folder_tokenizer
from deepinfer_cli.tokenizer.gguf import gguf_eos_token_ids, gguf_tokenizer
from deepinfer_cli.tokenizer.library import TokenizerError
from tests.support.tiny_tokenizer import gguf_metadata, vocabulary, write_folder

TEXTS = [
    "hello world",
    "hello  world 1234\n\n\tx",
    "w\u00f6rld \U0001f525 \u4e2d\u6587",
    "e\u0301 \u00e9",
    "",
    " ",
    "it's 12's",
    "\x00\x7f\x80",
]


def test_the_byte_alphabet_is_a_bijection():
    assert sorted(byte_of_character().values()) == list(range(256))
    assert spelled_bytes("\u0120hi") == b" hi"
    assert spelled_bytes("\u0120\u00c3\u00b6r") == " ör".encode()


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_round_trip_and_decodes_as_the_library_does(text):
    tokenizer = gguf_tokenizer(gguf_metadata())
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.backend.decode(ids) == text


def test_merges_specials_and_digits():
    tokenizer = gguf_tokenizer(gguf_metadata())
    tokens = vocabulary()
    assert [tokens[i] for i in tokenizer.encode("hello world")] == ["hello", "\u0120world"]
    assert [tokens[i] for i in tokenizer.encode("12")] == ["1", "2"]  # digits stay apart
    gpt2 = gguf_tokenizer(gguf_metadata(pre="gpt-2"))
    assert [tokens[i] for i in gpt2.encode("12")] == ["12"]
    assert tokenizer.encode("<|im_end|>x", parse_special=True) == [2, tokens.index("x")]
    spelled = tokenizer.encode("<|im_end|>")
    assert len(spelled) > 1 and tokenizer.decode(spelled) == "<|im_end|>"


def test_special_tokens_have_a_spelling_but_add_no_text():
    tokenizer = gguf_tokenizer(gguf_metadata())
    assert tokenizer.token_bytes[1] == b"<|im_start|>"
    assert list(tokenizer.special[:4]) == [True, True, True, False]
    assert tokenizer.decode([1, *tokenizer.encode("hello"), 2]) == "hello"
    assert tokenizer.decode([-1, 10**9]) == ""


def test_half_a_character_becomes_one_replacement_character():
    tokenizer = gguf_tokenizer(gguf_metadata())
    ids = tokenizer.encode("\U0001f525")
    assert tokenizer.decode(ids[:2]) == "\ufffd" == tokenizer.backend.decode(ids[:2])


def test_every_known_end_token_ends_an_answer():
    for changes, wanted in (({}, [2, 0]), ({"eos_token_id": None, "eot_token_id": 5}, [5, 0, 2])):
        metadata = gguf_metadata(**changes)
        assert gguf_eos_token_ids(metadata, gguf_tokenizer(metadata)) == wanted


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": "bert"}, "'bert'"),
        ({"model": "llama"}, "tokenizer.ggml.scores"),
        ({"add_bos_token": 3}, "add_bos_token"),
        ({"model": None}, "missing"),
        ({"pre": "martian"}, "'martian'"),
        ({"pre": 7}, "7"),
        ({"tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokens": "abc"}, "tokenizer.ggml.tokens"),
        ({"tokens": ["a"] * 269}, "'a' twice"),
        ({"merges": ["nospace"]}, "nospace"),
        ({"merges": ["h zebra"]}, "merges"),
        ({"token_type": [1]}, "token_type"),
        ({"bos_token_id": 999_999}, "999999"),
    ],
)
def test_a_broken_or_unknown_tokenizer_is_refused_by_name(change, named):
    with pytest.raises(TokenizerError, match=r"tokenizer\.ggml") as caught:
        gguf_tokenizer(gguf_metadata(**change))
    assert named in str(caught.value)


def test_the_fingerprint_tells_tokenizers_apart():
    same = gguf_tokenizer(gguf_metadata()).fingerprint
    assert gguf_tokenizer(gguf_metadata()).fingerprint == same
    assert len(same) == 16
    for change in ({"pre": "gpt-2"}, {"merges": ["h e"]}, {"add_bos_token": True}):
        assert gguf_tokenizer(gguf_metadata(**change)).fingerprint != same


def test_a_folder_gives_the_same_ids_as_the_metadata(tmp_path):
    folder = write_folder(tmp_path)
    loaded, rebuilt = folder_tokenizer(folder), gguf_tokenizer(gguf_metadata())
    assert [*loaded.token_bytes] == [*rebuilt.token_bytes]
    assert [*loaded.special] == [*rebuilt.special]
    for text in TEXTS:
        assert loaded.encode(text) == rebuilt.encode(text)
    assert (loaded.bos_token_id, loaded.adds_bos) == (1, False)
    assert folder_eos_token_ids(folder, loaded) == [2, 0]
    assert folder_tokenizer(write_folder(tmp_path / "bos", adds_bos=True)).adds_bos


def test_a_folder_without_or_with_a_broken_tokenizer_is_refused(tmp_path):
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json"):
        folder_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3')
    with pytest.raises(TokenizerError, match="cannot be read"):
        folder_tokenizer(tmp_path)


PIECES = [
    *(("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)),
    *((f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)),
    *((piece, -float(i), 1) for i, piece in enumerate(["\u2581a", "ab", "\u2581ab", "ba", "aba"])),
    *((piece, -1000.0 - i, 1) for i, piece in enumerate(["\u2581", "a", "b", "c"])),
]


def piece_metadata(**changes):
    tokens, scores, types = (list(column) for column in zip(*PIECES, strict=True))
    return gguf_metadata(
        model="llama",
        tokens=tokens,
        scores=scores,
        token_type=types,
        merges=None,
        add_bos_token=None,
        **changes,
    )


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("ab", ["\u2581ab"]),  # the space in front belongs to the first word
        ("aba c", ["\u2581ab", "a", "\u2581", "c"]),  # best score first: not \u2581, aba
        ("cab", ["\u2581", "c", "ab"]),
        ("c\n\u00e9", ["\u2581", "c", "<0x0A>", "<0xC3>", "<0xA9>"]),
        ("a<s>b", ["\u2581a", "<s>", "\u2581", "b"]),
    ],
)
def test_pieces_are_joined_best_score_first_with_bytes_for_the_rest(text, pieces):
    tokenizer = gguf_tokenizer(piece_metadata())
    ids = tokenizer.encode(text, parse_special=True)
    assert [PIECES[i][0] for i in ids] == pieces
    assert tokenizer.adds_bos and tokenizer.bos_token_id == 1 and tokenizer.kind == "llama"
    assert tokenizer.decode(ids).replace(" ", "") == text.replace(" ", "").replace("<s>", "")


def test_pieces_without_a_space_prefix():
    tokenizer = gguf_tokenizer(piece_metadata(add_space_prefix=False))
    assert [PIECES[i][0] for i in tokenizer.encode("ab")] == ["ab"]
    assert tokenizer.decode(tokenizer.encode("c \u00e9")) == "c \u00e9"


@pytest.mark.oracle
@pytest.mark.parametrize("size", [600, 1500])
def test_pieces_equal_sentencepiece(size):
    import sentencepiece

    texts = Path(__file__).parents[1] / "texts"
    lines = [line for file in sorted(texts.glob("*.txt")) for line in file.read_text().split("\n") if line]
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=trained,
        model_type="bpe",
        vocab_size=size,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    oracle = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    ids = range(oracle.vocab_size())
    kinds = [2 if oracle.is_unknown(i) else 3 if oracle.is_control(i) else 1 for i in ids]
    tokenizer = gguf_tokenizer(
        gguf_metadata(
            model="llama",
            tokens=[oracle.id_to_piece(i) for i in ids],
            scores=[oracle.get_score(i) for i in ids],
            token_type=kinds,
            merges=None,
        )
    )
    chance = random.Random(size)
    text = "\n".join(lines)
    for _ in range(5000):
        start = chance.randrange(len(text) - 80)
        piece = text[start : start + chance.randrange(1, 80)]
        noise = "".join(chance.choices("abc XYZ 019\n\t.,'\u00e9\u4e2d\U0001f525\u2581", k=20))
        for sample in (piece, noise):
            assert tokenizer.encode(sample) == oracle.encode(sample), repr(sample)


def changed_json(folder, change):
    write_folder(folder)
    state = json.loads((folder / "tokenizer.json").read_text())
    change(state)
    (folder / "tokenizer.json").write_text(json.dumps(state))
    return folder


def test_a_giant_token_id_is_refused_before_it_fills_memory(tmp_path):
    folder = changed_json(tmp_path, lambda state: state["model"]["vocab"].update(zzz=2**31))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        folder_tokenizer(folder)


def test_a_pattern_that_backtracks_without_end_is_an_error_of_the_text(tmp_path, capfd):
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    folder = changed_json(tmp_path, lambda state: state["pre_tokenizer"]["pretokenizers"].insert(0, split))
    tokenizer = folder_tokenizer(folder)
    with pytest.raises(TokenizerError, match="gave up on this text"):
        tokenizer.encode("a" * 60 + "b", parse_special=True)
    assert tokenizer.decode(tokenizer.encode("hello", parse_special=True)) == "hello"
    renderer = ChatRenderer(tokenizer, None, tokenizer.vocab_size)
    with pytest.raises(PromptError) as caught:
        renderer.render(PromptInput(text="a" * 60 + "b"))
    assert caught.value.code == "engine_error"


def test_piece_vocabularies_spell_bytes_and_spaces(tmp_path):
    from tokenizers import Tokenizer, decoders, models

    pieces = {"<unk>": 0, "\u2581": 1, "a": 2, "<0x0A>": 3, "\u2581a": 4}
    backend = Tokenizer(models.BPE(pieces, [("\u2581", "a")], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    (tmp_path / "tokenizer.json").write_text(backend.to_str(), encoding="utf-8")
    assert [*folder_tokenizer(tmp_path).token_bytes] == [b"<unk>", b" ", b"a", b"\n", b" a"]
