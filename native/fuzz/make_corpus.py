"""Writes the seed corpora of the fuzz targets: make_corpus.py FOLDER. Standard library only."""

import json
import random
import struct
import sys
from pathlib import Path


def gguf_text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf(
    entries: list[tuple[str, int, bytes]], tensors: list[tuple[str, list[int], int, int]], align: int = 32
) -> bytes:
    """tensors: (name, dimensions innermost first, type number, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    for key, kind, value in entries:
        out += gguf_text(key) + struct.pack("<I", kind) + value
    offset = 0
    for name, dims, kind, size in tensors:
        out += (
            gguf_text(name)
            + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
            + struct.pack("<IQ", kind, offset)
        )
        offset += -(-size // align) * align
    return out + bytes(-len(out) % align) + bytes(offset)


def gguf_seeds() -> list[bytes]:
    strings = struct.pack("<IQ", 8, 3) + gguf_text("a") + gguf_text("") + gguf_text("Ġb")
    entries = [
        ("general.architecture", 8, gguf_text("llama")),
        ("general.alignment", 4, struct.pack("<I", 64)),
        ("n", 10, struct.pack("<Q", 2**63)),
        ("f", 6, struct.pack("<f", 1.5)),
        ("b", 7, b"\1"),
        ("i", 1, b"\xff"),
        ("tokens", 9, strings),
        ("scores", 9, struct.pack("<IQ3f", 6, 3, 1, 2, 3)),
        ("flags", 9, struct.pack("<IQ3B", 7, 3, 1, 0, 1)),
        ("ints", 9, struct.pack("<IQ2q", 11, 2, -1, 5)),
    ]
    tensors = [("w", [32, 2], 3, 40), ("v", [3], 0, 12), ("k", [256], 12, 144), ("h", [2, 2, 2], 1, 16)]
    return [
        gguf([], []),
        gguf(entries, tensors, 64),
        gguf([], [("w", [4], 0, 16)]),
        gguf([("split.count", 2, b"\3\0")], []),
        gguf([], [("q", [256], 14, 210), ("r", [32], 8, 34), ("s", [32], 6, 22)]),
        b"GGUF" + struct.pack("<IQQ", 2, 2**63, 2**63),
    ]


def safetensors(header: object, size: int) -> bytes:
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + bytes(size)


def safetensors_seeds() -> list[bytes]:
    def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    return [
        safetensors({}, 0),
        safetensors({"w": entry("F32", [2, 3], 0, 24)}, 24),
        safetensors(
            {"__metadata__": {"format": "pt"}, "a": entry("BF16", [4], 0, 8), "b": entry("U8", [], 8, 9)}, 9
        ),
        safetensors({"z": entry("F16", [0, 5], 0, 0), "w": entry("I64", [1], 0, 8)}, 8),
        safetensors({"w": entry("F32", [2**62, 2**62], 0, 8)}, 8),
        safetensors({"w": entry("F8_E4M3", [8], 0, 8), "x": entry("F32", [1], 4, 8)}, 8),
        struct.pack("<Q", 2**63) + b"{}",
    ]


def row_seeds() -> list[bytes]:
    return [
        b"{}",
        b'{"id": "a", "prompt": "hello", "max_tokens": 4, "temperature": 0.5}',
        b'{"id": 12345678901234567890, "metadata": {"a": [1, -2.5e-3, null, true, {"b": "c"}]}}\r',
        '{"messages":[{"role":"user","content":"tïde\\n\\u00e9\\ud83d\\udd25 🔥"}]}'.encode(),
        b'{"a": "\\ud83d", "b\\u0062": "\\\\", "bb": 1}',
        b'{"a":NaN}',
        b'{"a":1e400,"b":1E+308,"c":-0.0}',
        b'{"a":1,"a":2}',
        b'{"k":' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"x": "\xed\xa0\x80"}',
        b"[1, 2]",
        b'{"k0":0,"k1":0,"k2":0,"k3":0,"k4":0,"k5":0,"k6":0,"k7":0,"k8":0,"k9":0,"l0":0,"l1":0,"l2":0,"l3":0,'
        b'"l4":0,"l5":0,"l6":0,"l7":0,"l8":0,"l9":0,"m0":0,"m1":0,"m2":0,"m3":0,"m4":0,"m5":0,"k3":1}',
    ]


def json_seeds() -> list[bytes]:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 576,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0},
        "eos_token_id": [1, 2.5, 18446744073709551615],
        "mixed": [1, "x", {"y": [True, None]}],
        "a.b": 1,
    }
    return [
        json.dumps(config).encode(),
        b'{"a":{"b":1},"a.b":2}',
        b"[[[[]]]]",
        b'"x"',
        b"[" + b"0," * 1200 + b"0]",
    ]


def text_seeds() -> list[bytes]:
    def pieces(*parts: bytes) -> bytes:
        return b"".join(bytes([len(part)]) + part for part in parts)

    return [
        b"\0\0" + pieces(b"abc", "é".encode()[:1], "é".encode()[1:]),
        b"\1\2" + pieces(b"ab", b"b a") + pieces(b"xa", b"b", b" a"),
        b"\0\1" + pieces("é€".encode()) + pieces("aé".encode(), b"\xe2\x82", b"\xac!"),
        b"\0\1" + pieces(b"aa") + b"\x83aaa" + pieces(b"aa"),
        b"\1\3" + pieces(b"\xff", b"a", b"aaab") + pieces(b"aaa\xff", b"\xf0\x9f", b"\x94\xa5"),
    ]


def bpe_seeds() -> list[bytes]:
    texts = [
        "aaab aab <s> 1212 \n\n\n x",
        "I'LL don't we've it'ſ \t\r\n  end  ",
        "é€🔥 ½ ٣ ⅷ e\u0301\u0323 각 \u3000\u2028x",
        "a" * 200,
        "!?'s'S 's...\n\n---\r\r x\u0085\u00a0",
        "\u09c7\u09be \u1100\u1161\u11a8 \u212b \U00011099\U000110ba",
    ]
    data = [text.encode() for text in texts] + [b"\xff\xc3 \xe2\x82a\xed\xa0\x80"]
    return [bytes([pre]) + text for text in data for pre in range(4)]


def scheduler_seeds() -> list[bytes]:
    """Random sizes, then arrivals between steps: most random bytes would say neither."""
    rng = random.Random(5)
    seeds = []
    for _ in range(60):
        out = rng.randbytes(24)
        for _ in range(rng.randrange(5, 50)):
            if rng.random() < 0.35:
                out += bytes([0, rng.randrange(64)]) + rng.randbytes(rng.randrange(2, 30))
            else:
                out += b"\3" * rng.randrange(1, 12)
        seeds.append(out[:1400])
    return seeds


def main() -> None:
    corpora = {
        "gguf": gguf_seeds(),
        "safetensors": safetensors_seeds(),
        "row_scanner": row_seeds(),
        "json": json_seeds(),
        "text_state": text_seeds(),
        "bpe": bpe_seeds(),
        "scheduler": scheduler_seeds(),
    }
    root = Path(sys.argv[1])
    for name, seeds in corpora.items():
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (folder / f"seed-{number:02}").write_bytes(seed)
    (root / ".made").touch()


if __name__ == "__main__":
    main()
