"""The native BPE encoder against the library that it must equal."""

import json
import random
import unicodedata
from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from deepinfer_cli import _native
from deepinfer_cli.models.resolve import resolve_model
from deepinfer_cli.tokenizer.byte_level import byte_of_character
from deepinfer_cli.tokenizer.gguf import gguf_tokenizer
from deepinfer_cli.tokenizer.library import LibraryTokenizer, TokenizerError, byte_level_table
from deepinfer_cli.tokenizer.native_bpe import native_twin
from deepinfer_cli.tokenizer.pre import PRE_TOKENIZERS
from tests.support.deepseek_vocabulary import deepseek_tokenizer
from tests.support.fixed_texts import source_of
from tests.support.tiny_tokenizer import gguf_metadata

TEXTS = [source_of(kind) for kind in ("prose", "code", "chat")]
PRE_NAMES = ("gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-v3")
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|im|>", "<|", "é!")
ADDED = ("|x|", "im_")
LATE = ("|>e", "x|", "e!<")  # normalized, so that the library looks for them after the others
WORDS = [
    "don't",
    "I'LL",
    "we've",
    "x'\u017f",
    "it'S ",
    "  ",
    "\r\n",
    "\n\n",
    "\t",
    " \n ",
    "1234",
    "\u00bd",
    "…",
    "!?",
    "' s",
    "\u30fb\u30a2",
    "\u4e00",
    "$Aé",
]


def random_character(rng: random.Random) -> str:
    kind = rng.randrange(8)
    if kind < 3:
        return chr(rng.randrange(32, 127))
    if kind == 3:
        return rng.choice(WORDS)
    if kind == 4:
        return rng.choice(["\u0301", "\u0323", "e", "a", "\uac00", "\u1100", "\u1161", "\u11a8", "\u0345"])
    if kind == 5:
        return chr(rng.randrange(0x2000))
    code = rng.randrange(0x110000)
    return chr(code) if not 0xD800 <= code < 0xE000 else rng.choice(SPECIALS + ADDED + LATE)


def random_text(rng: random.Random) -> str:
    return "".join(random_character(rng) for _ in range(rng.randrange(24)))


def assert_equal_encodings(library: LibraryTokenizer, text: str, twin: _native.BpeTokenizer) -> None:
    for parse_special in (False, True):
        wanted = library.encode(text, parse_special)
        assert twin.encode(text, parse_special) == wanted, (text, parse_special)


def trained(pre_name: str) -> LibraryTokenizer:
    """A vocabulary of 900 tokens trained on our own texts, with some bytes left out on purpose."""
    pre = PRE_TOKENIZERS[pre_name]
    backend = Tokenizer(models.BPE(ignore_merges=pre.ignore_merges))
    backend.pre_tokenizer = pre.build()
    backend.decoder = decoders.ByteLevel()
    if pre.nfc:
        backend.normalizer = normalizers.NFC()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:-3]
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    backend.train(list(map(str, TEXTS)), trainer)
    backend.add_special_tokens(list(SPECIALS))
    late = () if pre.nfc else LATE
    backend.add_tokens([AddedToken(text, normalized=text in late) for text in ADDED + late])
    size = backend.get_vocab_size()
    tokens = [backend.id_to_token(i) for i in range(size)]
    special = [token in SPECIALS for token in tokens]
    literal = {i for i, token in enumerate(tokens) if token in SPECIALS + ADDED + late}
    table = byte_level_table(tokens, literal)
    return LibraryTokenizer(
        backend,
        token_bytes=table,
        special=special,
        bos_token_id=None,
        adds_bos=False,
        fingerprint="",
        kind=pre_name,
    )


@pytest.mark.parametrize("pre_name", PRE_NAMES)
def test_ids_equal_the_library(pre_name: str) -> None:
    library = trained(pre_name)
    twin = native_twin(library)
    rng = random.Random(11)
    for _ in range(4_000):
        assert_equal_encodings(library, random_text(rng), twin)
    for path in TEXTS:
        assert_equal_encodings(library, path.read_text(encoding="utf-8"), twin)


def test_long_words_equal_the_library() -> None:
    library = trained("gpt-2")
    twin = native_twin(library)
    rng = random.Random(12)
    for size in (63, 64, 65, 66, 200, 5_000):
        assert_equal_encodings(library, "".join(rng.choice("aest") for _ in range(size)), twin)
    assert_equal_encodings(library, "e" * 100_000, twin)


def library_words(pre_name: str) -> Callable[[str], list[bytes]]:
    pre = PRE_TOKENIZERS[pre_name].build()
    byte_of = byte_of_character()
    return lambda text: [bytes(byte_of[c] for c in word) for word, _ in pre.pre_tokenize_str(text)]


def known_characters() -> list[str]:
    """All that this Python knows, but one in 17 of the three large uniform kinds. (Characters that came later
    may differ between releases of the library.)"""
    kinds = {c: unicodedata.category(chr(c)) for c in range(0x110000)}
    uniform = ("CJK UNIFIED", "HANGUL SYLLABLE", "TANGUT", "NUSHU", "KHITAN")
    return [
        chr(c)
        for c, kind in kinds.items()
        if kind not in ("Cn", "Cs")
        and (c % 17 == 0 or (kind != "Co" and not unicodedata.name(chr(c), "").startswith(uniform)))
    ]


@pytest.mark.parametrize("pre_name", PRE_NAMES)
def test_every_character_is_classed_as_in_the_library(pre_name: str) -> None:
    known = known_characters()
    assert len(known) > 45_000
    words = library_words(pre_name)
    twin = native_twin(trained(pre_name))
    patterns = ("!{}a", "\u3042{}\u0301 {}!") if pre_name == "deepseek-v3" else ("a{}1", " {} ")
    for pattern in patterns:
        text = "\n".join(pattern.replace("{}", c) for c in known)
        got, wanted = twin.split(text), words(text)
        if got != wanted:
            at = next(i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b)
            pytest.fail(f"{got[at : at + 3]} != {wanted[at : at + 3]}")


def test_normalisation_equals_the_library() -> None:
    library = normalizers.NFC()
    twin = _native.BpeTokenizer([bytes([b]) for b in range(256)], [], "qwen2", {}, nfc=True)
    rng = random.Random(13)
    marks = [chr(c) for c in range(0x110000) if unicodedata.combining(chr(c))]
    bases = [chr(c) for c in range(0x110000) if unicodedata.decomposition(chr(c))]
    bases += [chr(c) for c in range(0xAC00, 0xD7A4, 37)] + list("aeAE\u1100\u1161\u11a8\u09c7\u0bc6")
    texts = [c + m for c in bases for m in ("", "\u0301", rng.choice(marks))]
    texts += [
        "".join(rng.choice([*rng.sample(marks, 2), *rng.sample(bases, 2)]) for _ in range(6))
        for _ in range(5_000)
    ]
    for text in texts:
        assert bytes(twin.encode(text, False)) == library.normalize_str(text).encode(), ascii(text)


def test_bytes_that_are_not_utf8_are_symbols() -> None:
    twin = _native.BpeTokenizer([bytes([b]) for b in range(256)], [], "gpt-2", {})
    assert twin.encode(b"a\xff\xc3 \xe2\x82", False) == list(b"a\xff\xc3 \xe2\x82")
    assert twin.split(b"a\xff\xfeb") == [b"a", b"\xff\xfe", b"b"]


def test_what_cannot_be_done_is_refused() -> None:
    alphabet = [bytes([b]) for b in range(256)]
    with pytest.raises(_native.NativeError, match="supported are gpt-2") as caught:
        _native.BpeTokenizer(alphabet, [], "deepseek-v9", {})
    assert caught.value.args[1] == "unsupported"
    with pytest.raises(_native.NativeError, match="not in the vocabulary"):
        _native.BpeTokenizer(alphabet, [(97, 98)], "gpt-2", {})
    with pytest.raises(_native.NativeError, match="outside the vocabulary"):
        _native.BpeTokenizer(alphabet, [(97, 256)], "gpt-2", {})
    with pytest.raises(_native.NativeError, match="outside the vocabulary"):
        _native.BpeTokenizer(alphabet, [], "gpt-2", {b"<s>": 256})
    with pytest.raises(_native.NativeError, match="has 0 bytes"):
        _native.BpeTokenizer(alphabet, [], "gpt-2", {b"": 1})
    with pytest.raises(TokenizerError, match="does not know this pre-tokenizer"):
        library = gguf_tokenizer(gguf_metadata(pre="gpt-2"))
        library.backend.pre_tokenizer = pre_tokenizers.Whitespace()
        native_twin(library)
    library = trained("gpt-2")
    library.backend.normalizer = normalizers.NFC()
    with pytest.raises(TokenizerError, match="normalized"):
        native_twin(library)


@pytest.mark.model
def test_100000_strings_on_the_small_model() -> None:
    path = resolve_model(None, None, print).path
    library = gguf_tokenizer(_native.open_tensor_file(path).metadata)
    twin = native_twin(library)
    rng = random.Random(14)
    for _ in range(100_000):
        text = random_text(rng)
        assert twin.encode(text, True) == library.encode(text, True), text


def deepseek_text(rng: random.Random, added: list[str]) -> str:
    """Also added tokens, which may overlap, parts of them, and what the number and kana splits cut at."""
    makers: list[Callable[[], str]] = [
        lambda: rng.choice(added),
        lambda: rng.choice(added)[: rng.randrange(1, 12)],
        lambda: rng.choice(added)[-rng.randrange(1, 12) :],
        lambda: chr(rng.randrange(0x3030, 0x3110)),
        lambda: chr(rng.randrange(0x4DF0, 0x9FB0)),
        lambda: rng.choice("0123456789\u0663\u2167\u00bd") * rng.randrange(1, 6),
        lambda: rng.choice(" \t\r\n\v\x85\u2028\u3000\u200b\x00") * rng.randrange(1, 3),
        lambda: rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        lambda: rng.choice(["a", "Z", "\u017f", "\u212a", "\u0301", "\u20dd", "\u3099", "abc"]),
        *[lambda: random_character(rng)] * 3,
    ]
    return "".join(rng.choice(makers)() for _ in range(rng.randrange(24)))


@pytest.mark.oracle
def test_deepseeks_own_tokenizer() -> None:
    library = deepseek_tokenizer()
    twin = native_twin(library)
    added = [entry["content"] for entry in json.loads(library.backend.to_str())["added_tokens"]]
    rng = random.Random(15)
    for _ in range(5_000):
        assert_equal_encodings(library, deepseek_text(rng, added), twin)
    for path in TEXTS:
        assert_equal_encodings(library, path.read_text(encoding="utf-8"), twin)
