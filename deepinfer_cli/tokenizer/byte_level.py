"""The byte-level alphabet: how byte-level BPE vocabularies spell the 256 bytes as visible characters."""

from __future__ import annotations

from functools import cache


@cache
def byte_of_character() -> dict[str, int]:
    """Character -> byte. Printable Latin-1 stands for itself, the other 68 bytes follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if chr(byte) not in alphabet]
    alphabet.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return alphabet


def spelled_bytes(token: str) -> bytes:
    """Bytes of a vocabulary entry; characters outside the alphabet stand for their own UTF-8."""
    alphabet = byte_of_character()
    try:
        return bytes([alphabet[character] for character in token])
    except KeyError:
        return b"".join(
            bytes([alphabet[c]]) if c in alphabet else c.encode("utf-8", "replace") for c in token
        )


@cache
def character_of_byte() -> dict[int, str]:
    return {byte: character for character, byte in byte_of_character().items()}
