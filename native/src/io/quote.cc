#include "io/quote.h"

#include "text/utf8.h"

namespace deepinfer {

std::string quote(std::string_view name) {
  constexpr size_t kMaxBytes = 100;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  size_t i = 0;
  while (i < name.size() && i < kMaxBytes) {
    const utf8::Piece piece = utf8::classify(name.substr(i));
    const auto byte = static_cast<unsigned char>(name[i]);
    if (piece.form != utf8::Form::kComplete) {
      out += utf8::kReplacement;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      out += name.substr(i, piece.length);
    }
    i += piece.length;
  }
  if (i < name.size()) out += "...";
  return out + "\"";
}

std::string show_shape(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return out + "]";
}

}  // namespace deepinfer
