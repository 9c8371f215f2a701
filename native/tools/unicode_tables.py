"""Writes native/src/text/unicode_tables.inc and unicode_nfc.inc.

usage: python native/tools/unicode_tables.py    (needs pip; installs two editions of unicodedata2 aside)

The editions are those that the `tokenizers` library uses (0.23): 16.0 in its regular expressions, 17.0 in its
digit splitter. Its normaliser knows Unicode 9.0, so marks and compositions that came later are left out of
the NFC tables (normalisation of a character never changes once it is assigned).
tests/unit/native/test_bpe.py compares with the installed library.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "src" / "text"
REGEX_EDITION = "16.0.0"
DIGITS_EDITION = "17.0.0"
WHITE_SPACE = {
    *range(0x09, 0x0E),
    0x20,
    0x85,
    0xA0,
    0x1680,
    *range(0x2000, 0x200B),
    0x2028,
    0x2029,
    0x202F,
    0x205F,
}
WHITE_SPACE.add(0x3000)
# Combining marks and compositions of Unicode 10.0 to 16.0, first and last.
LATER_THAN_9 = [
    (0x07FD, 0x07FD),
    (0x0897, 0x089F),
    (0x08CA, 0x08D3),
    (0x09FE, 0x09FE),
    (0x0C3C, 0x0C3C),
    (0x0D3B, 0x0D3C),
    (0x0EBA, 0x0EBA),
    (0x1715, 0x1715),
    (0x1ABF, 0x1ACE),
    (0x1DF6, 0x1DFA),
    (0xA82C, 0xA82C),
    (0x105C9, 0x105C9),
    (0x105E4, 0x105E4),
    (0x10D24, 0x10D27),
    (0x10D69, 0x10D6D),
    (0x10EAB, 0x10EAC),
    (0x10EFD, 0x10EFF),
    (0x10F46, 0x10F50),
    (0x10F82, 0x10F85),
    (0x11070, 0x11070),
    (0x1133B, 0x1133B),
    (0x11383, 0x11383),
    (0x11385, 0x11385),
    (0x1138E, 0x1138E),
    (0x11391, 0x11391),
    (0x113C5, 0x113C5),
    (0x113C7, 0x113C8),
    (0x113CE, 0x113D0),
    (0x1145E, 0x1145E),
    (0x11839, 0x1183A),
    (0x11938, 0x11938),
    (0x1193D, 0x1193E),
    (0x11943, 0x11943),
    (0x119E0, 0x119E0),
    (0x11A34, 0x11A34),
    (0x11A47, 0x11A47),
    (0x11A99, 0x11A99),
    (0x11D42, 0x11D42),
    (0x11D44, 0x11D45),
    (0x11D97, 0x11D97),
    (0x11F41, 0x11F42),
    (0x16121, 0x16128),
    (0x1612F, 0x1612F),
    (0x16D68, 0x16D6A),
    (0x16FF0, 0x16FF1),
    (0x1E08F, 0x1E08F),
    (0x1E130, 0x1E136),
    (0x1E2AE, 0x1E2AE),
    (0x1E2EC, 0x1E2EF),
    (0x1E4EC, 0x1E4EF),
    (0x1E5EE, 0x1E5EF),
]
OTHER, LETTER, NUMBER, SPACE, NEW_NUMBER, MARK, SIGN = range(7)  # CharClass
REGEX_CLASSES = {"L": LETTER, "N": NUMBER, "M": MARK, "P": SIGN, "S": SIGN}  # by general category


def load_edition(version: str, folder: Path) -> ModuleType:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    subprocess.run([*pip, f"unicodedata2=={version}"], check=True)
    (library,) = folder.glob("unicodedata2*.so")
    spec = importlib.util.spec_from_file_location("unicodedata2", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.unidata_version == version
    return module


def class_of(code: int, regex: ModuleType, digits: ModuleType) -> int:
    if code in WHITE_SPACE:
        return SPACE
    kind = regex.category(chr(code))[0]
    if kind in REGEX_CLASSES:
        return REGEX_CLASSES[kind]
    return NEW_NUMBER if digits.category(chr(code))[0] == "N" else OTHER


def lines(values: list[str], per_line: int) -> str:
    rows = [values[i : i + per_line] for i in range(0, len(values), per_line)]
    return "".join("    " + ", ".join(row) + ",\n" for row in rows)


def class_tables(regex: ModuleType, digits: ModuleType) -> str:
    index: list[int] = []
    blocks: dict[tuple[int, ...], int] = {}
    for first in range(0, 0x110000, 256):
        block = tuple(class_of(code, regex, digits) for code in range(first, first + 256))
        index.append(blocks.setdefault(block, len(blocks)))
    assert len(blocks) <= 256
    text = f"constexpr uint8_t kClassIndex[{len(index)}] = {{\n{lines([str(i) for i in index], 26)}}};\n\n"
    text += f"constexpr uint64_t kClassBlocks[{len(blocks)}][16] = {{\n"
    for block in blocks:
        words = [sum(c << (4 * i) for i, c in enumerate(block[at : at + 16])) for at in range(0, 256, 16)]
        text += "    {" + ", ".join(f"0x{word:x}" for word in words) + "},\n"
    return text + "};\n"


def nfc_tables(unicode: ModuleType) -> str:
    late = {code for first, last in LATER_THAN_9 for code in range(first, last + 1)}
    codes = [code for code in range(0x110000) if code not in late and not 0xD800 <= code < 0xE000]
    steps: list[tuple[int, int, int]] = []
    for code in codes:
        step = unicode.decomposition(chr(code))
        if step and not step.startswith("<"):
            first, second = (*(int(part, 16) for part in step.split()), 0)[:2]
            steps.append((code, first, second))
    pairs = [i for i, (code, _, second) in enumerate(steps) if second and composes(unicode, code)]
    pairs.sort(key=lambda i: steps[i][1:])
    text = f"constexpr CanonicalStep kSteps[{len(steps)}] = {{\n"
    text += lines([f"{{0x{a:x}, 0x{b:x}, 0x{c:x}}}" for a, b, c in steps], 5) + "};\n\n"
    text += (
        f"constexpr uint16_t kCompositions[{len(pairs)}] = {{\n{lines([str(i) for i in pairs], 18)}}};\n\n"
    )
    runs: list[list[int]] = []
    for code in codes:
        order = unicode.combining(chr(code))
        if order and runs and runs[-1][1] == code - 1 and runs[-1][2] == order:
            runs[-1][1] = code
        elif order:
            runs.append([code, code, order])
    text += f"constexpr OrderRange kOrders[{len(runs)}] = {{\n"
    return text + lines([f"{{0x{a:x}, 0x{b:x}, {c}}}" for a, b, c in runs], 5) + "};\n"


def composes(unicode: ModuleType, code: int) -> bool:
    return bool(unicode.normalize("NFC", unicode.normalize("NFD", chr(code))) == chr(code))


def write(name: str, types: str, tables: str) -> None:
    text = (
        "// Made by native/tools/unicode_tables.py; not to be edited.\n#pragma once\n\n#include <cstdint>\n\n"
    )
    text += (
        f"namespace deepinfer {{\nnamespace {{\n\n{types}// clang-format off\n{tables}// clang-format on\n\n"
    )
    text += "}  // namespace\n}  // namespace deepinfer\n"
    (FOLDER / name).write_text(text, encoding="utf-8")


NFC_TYPES = """struct CanonicalStep {
  uint32_t code, first, second;  // code decomposes into first and second (0: first alone); sorted by code
};
struct OrderRange {
  uint32_t first, last, order;  // canonical combining classes other than 0
};
// kCompositions: indices into kSteps of the pairs that compose, sorted by (first, second).

"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        regex = load_edition(REGEX_EDITION, Path(scratch, "regex"))
        digits = load_edition(DIGITS_EDITION, Path(scratch, "digits"))
        write("unicode_tables.inc", "", class_tables(regex, digits))
        write("unicode_nfc.inc", NFC_TYPES, nfc_tables(regex))


if __name__ == "__main__":
    main()
