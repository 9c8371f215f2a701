// What kind of character a code point is, as the pre-tokenizers' patterns ask.
#pragma once

#include <cstdint>

namespace deepinfer {

// The library whose splits we reproduce uses two editions of Unicode: its regular expressions know 16.0, its
// digit splitter 17.0. Numbers that only the latter knows have a class of their own.
enum class CharClass : uint8_t {
  kOther,
  kLetter,     // \p{L}
  kNumber,     // \p{N}
  kSpace,      // \s
  kNewNumber,  // a number to the digit splitter, kOther to the patterns
  kMark,       // \p{M}
  kSign,       // \p{P} and \p{S}
};

CharClass char_class(uint32_t code_point);

}  // namespace deepinfer
