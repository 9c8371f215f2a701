#include "text/unicode_class.h"

#include "text/unicode_tables.inc"

namespace deepinfer {

// Two levels: blocks of 256 code points, equal blocks stored once, 4 bits a code point.
CharClass char_class(uint32_t code_point) {
  if (code_point > 0x10FFFF) return CharClass::kOther;
  const uint64_t word = kClassBlocks[kClassIndex[code_point >> 8]][(code_point & 255) >> 4];
  return static_cast<CharClass>(word >> (4 * (code_point & 15)) & 15);
}

}  // namespace deepinfer
