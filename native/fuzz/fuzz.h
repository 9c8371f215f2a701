// What the fuzz targets share.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/utf8.h"

// A property of the code under test; always on.
#define FUZZ_CHECK(condition)                                              \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (0)

namespace deepinfer::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const utf8::Piece piece = utf8::classify(text);
    if (piece.form != utf8::Form::kComplete) return false;
    text.remove_prefix(piece.length);
  }
  return true;
}

// Messages go to people and into JSON: one line of UTF-8.
inline bool is_message(std::string_view text) {
  return !text.empty() && is_utf8(text) && text.find('\n') == text.npos && text.size() < 2000;
}

// Takes values off the front of an input.
class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : rest_(text_of(data, size)) {}
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return value;
  }
  std::string_view bytes(size_t count) {
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(out.size());
    return out;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace deepinfer::fuzz
