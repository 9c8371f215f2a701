// The pieces of RFC 8259 that the row scanner and the document parser share: white space, strings,
// numbers, literals. Works on borrowed text, allocates nothing but an error message.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "text/utf8.h"

namespace deepinfer {

enum class JsonFaultKind : uint8_t { kNone, kSyntax, kEncoding, kTooDeep, kTooBig };

struct JsonFault {
  JsonFaultKind kind = JsonFaultKind::kNone;
  std::string message;  // one clause without a full stop, valid UTF-8
  size_t offset = 0;    // byte offset into the text
};

// A string as it stands between its quotes: valid UTF-8, escapes checked but not replaced.
struct JsonString {
  std::string_view raw;
  bool has_escapes = false;
};

struct JsonNumber {
  std::string_view raw;
  bool is_integer = false;  // neither a fraction nor an exponent
};

// Replaces the escapes of a checked string and appends it to `out`; a lone surrogate becomes U+FFFD.
void decode_json_string(std::string_view raw, std::string& out);

class JsonLexer {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  explicit JsonLexer(std::string_view text) : text_(text) {}

  size_t position() const { return pos_; }
  bool at_end() const { return pos_ == text_.size(); }
  unsigned char peek() const { return static_cast<unsigned char>(text_[pos_]); }  // not at the end
  void advance() { ++pos_; }
  const JsonFault& fault() const { return fault_; }
  size_t first_lone_surrogate() const { return lone_surrogate_; }  // offset of its backslash, or kNone

  void skip_space() {
    while (pos_ < text_.size()) {
      const char c = text_[pos_];
      if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return;
      ++pos_;
    }
  }

  // Each expects the position at the value's first byte and leaves it behind the last; false sets fault().
  bool string(JsonString& out);
  bool number(JsonNumber& out);
  bool literal(std::string_view word);

  // Faults at the current position: "<wanted>, found <what stands here>".
  bool unexpected(std::string_view wanted);
  bool fail(JsonFaultKind kind, std::string message, size_t offset) {
    if (fault_.kind == JsonFaultKind::kNone) fault_ = {kind, std::move(message), offset};
    return false;
  }

 private:
  size_t skip_plain(size_t pos) const;
  bool escape();
  bool hex4(size_t pos, uint32_t& value) const;
  bool check_range(std::string_view raw, size_t offset);

  std::string_view text_;
  size_t pos_ = 0;
  size_t lone_surrogate_ = kNone;
  JsonFault fault_;
};

// First byte at or after `pos` that needs a look inside a string: a quote, a backslash, a control
// character or the lead of a multi-byte character. Eight bytes at a time, since rows are mostly such text.
inline size_t JsonLexer::skip_plain(size_t pos) const {
  constexpr uint64_t kOnes = 0x0101010101010101ull, kHighs = 0x8080808080808080ull;
  const char* data = text_.data();
  const size_t size = text_.size();
  if constexpr (std::endian::native == std::endian::little) {
    for (; pos + 8 <= size; pos += 8) {
      uint64_t v;
      std::memcpy(&v, data + pos, 8);
      const uint64_t quote = v ^ kOnes * '"', slash = v ^ kOnes * '\\';
      // A borrow can only mark bytes above a true hit, so the lowest mark is always right.
      const uint64_t hits =
          (((v - kOnes * 0x20) & ~v) | ((quote - kOnes) & ~quote) | ((slash - kOnes) & ~slash) | v) & kHighs;
      if (hits != 0) return pos + static_cast<size_t>(std::countr_zero(hits)) / 8;
    }
  }
  for (; pos < size; ++pos) {
    const unsigned char c = static_cast<unsigned char>(data[pos]);
    if (c < 0x20 || c == '"' || c == '\\' || c >= 0x80) break;
  }
  return pos;
}

}  // namespace deepinfer
