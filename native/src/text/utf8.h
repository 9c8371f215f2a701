// The one definition of well-formed UTF-8 (Unicode 15, table 3-7) that every reader here shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Form : uint8_t {
  kComplete,    // `length` bytes are one character
  kIncomplete,  // all `length` bytes to the end are the beginning of a character
  kInvalid,     // `length` bytes are a maximal subpart that no byte can complete: one U+FFFD
};
struct Piece {
  Form form;
  uint8_t length;  // 1 .. 4
};

// What stands at `text[0]`; `size` >= 1.
inline Piece classify(const unsigned char* text, size_t size) {
  const unsigned char lead = text[0];
  if (lead < 0x80) return {Form::kComplete, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Form::kInvalid, 1};
  const uint8_t want = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range keeps out overlong forms, surrogates and code points past U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (size < 2) return {Form::kIncomplete, 1};
  if (text[1] < low || text[1] > high) return {Form::kInvalid, 1};
  for (uint8_t i = 2; i < want; ++i) {
    if (size <= i) return {Form::kIncomplete, i};
    if ((text[i] & 0xC0) != 0x80) return {Form::kInvalid, i};
  }
  return {Form::kComplete, want};
}
inline Piece classify(std::string_view text) {
  return classify(reinterpret_cast<const unsigned char*>(text.data()), text.size());
}

// Code point of a complete character of `length` bytes.
inline uint32_t decode(const unsigned char* text, int length) {
  switch (length) {
    case 1: return text[0];
    case 2: return (text[0] & 0x1Fu) << 6 | (text[1] & 0x3Fu);
    case 3: return (text[0] & 0x0Fu) << 12 | (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);
    default:
      return (text[0] & 0x07u) << 18 | (text[1] & 0x3Fu) << 12 | (text[2] & 0x3Fu) << 6 | (text[3] & 0x3Fu);
  }
}

// Appends a scalar value (not a surrogate, at most U+10FFFF).
inline void append(std::string& out, uint32_t code_point) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | code_point >> 6);
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | code_point >> 12);
    out += static_cast<char>(0x80 | (code_point >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code_point >> 18);
    out += static_cast<char>(0x80 | (code_point >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code_point >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  }
}

}  // namespace deepinfer::utf8
