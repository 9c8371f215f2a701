#include "base/json_lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "deepinfer/status.h"

namespace deepinfer {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string hex_byte(unsigned char c) {
  constexpr char kDigits[] = "0123456789abcdef";
  return {'0', 'x', kDigits[c >> 4], kDigits[c & 15]};
}

bool is_high_surrogate(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low_surrogate(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// Exponent of the first significant digit when the number is written as d.ddd * 10^e; saturates.
int64_t decimal_exponent(std::string_view raw) {
  constexpr int64_t kLimit = 1'000'000'000;
  int64_t exponent = 0;
  const size_t e = std::min(raw.find_first_of("eE"), raw.size());
  if (e < raw.size()) {
    const bool negative = raw[e + 1] == '-';
    for (size_t i = e + 1; i < raw.size(); ++i) {
      if (is_digit(raw[i]) && exponent < kLimit) exponent = exponent * 10 + (raw[i] - '0');
    }
    if (negative) exponent = -exponent;
  }
  const std::string_view mantissa = raw.substr(0, e);
  const size_t first = mantissa.find_first_of("123456789");
  if (first == std::string_view::npos) return -kLimit;  // zero
  const size_t dot = std::min(mantissa.find('.'), mantissa.size());
  const auto distance = static_cast<int64_t>(dot) - static_cast<int64_t>(first);
  return exponent + (first < dot ? distance - 1 : distance);
}

}  // namespace

bool JsonLexer::hex4(size_t pos, uint32_t& value) const {
  if (pos + 4 > text_.size()) return false;
  value = 0;
  for (size_t i = pos; i < pos + 4; ++i) {
    const int digit = hex_digit(text_[i]);
    if (digit < 0) return false;
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  return true;
}

bool JsonLexer::escape() {
  const size_t begin = pos_;
  if (begin + 1 >= text_.size()) return fail(JsonFaultKind::kSyntax, "the text ends inside an escape", begin);
  const char kind = text_[begin + 1];
  if (kind != 'u') {
    if (kind == '\0' || std::strchr("\"\\/bfnrt", kind) == nullptr) {
      pos_ = begin + 1;
      unexpected("expected one of \" \\ / b f n r t u after a backslash");
      return false;
    }
    pos_ = begin + 2;
    return true;
  }
  uint32_t unit = 0;
  if (!hex4(begin + 2, unit)) {
    return fail(JsonFaultKind::kSyntax, "\\u must be followed by four hexadecimal digits", begin);
  }
  pos_ = begin + 6;
  if (is_high_surrogate(unit)) {
    uint32_t low = 0;
    if (text_.substr(pos_, 2) == "\\u" && hex4(pos_ + 2, low) && is_low_surrogate(low)) {
      pos_ += 6;
      return true;
    }
  } else if (!is_low_surrogate(unit)) {
    return true;
  }
  if (lone_surrogate_ == kNone) lone_surrogate_ = begin;
  return true;
}

bool JsonLexer::string(JsonString& out) {
  const size_t quote = pos_;
  out.has_escapes = false;
  for (++pos_;;) {
    pos_ = skip_plain(pos_);
    if (at_end()) {
      return fail(JsonFaultKind::kSyntax, "the string that begins here is not closed", quote);
    }
    const unsigned char c = peek();
    if (c == '"') break;
    if (c == '\\') {
      out.has_escapes = true;
      if (!escape()) return false;
    } else if (c < 0x20) {
      return fail(JsonFaultKind::kSyntax,
                  str_cat("control character ", hex_byte(c), " in a string must be escaped"), pos_);
    } else {
      do {
        const utf8::Piece piece = utf8::classify(text_.substr(pos_));
        if (piece.form != utf8::Form::kComplete) return unexpected("");
        pos_ += piece.length;
      } while (!at_end() && peek() >= 0x80);
    }
  }
  out.raw = text_.substr(quote + 1, pos_ - quote - 1);
  ++pos_;
  return true;
}

bool JsonLexer::check_range(std::string_view raw, size_t offset) {
  constexpr int64_t kMaxExponent = 308;  // DBL_MAX is 1.797...e308
  const int64_t exponent = decimal_exponent(raw);
  if (exponent < kMaxExponent) return true;
  if (exponent == kMaxExponent) {
    double value = 0;
    const auto result = std::from_chars(raw.data(), raw.data() + raw.size(), value);
    if (result.ec == std::errc() && std::isfinite(value)) return true;
  }
  return fail(JsonFaultKind::kSyntax, "the number is beyond the range of a double", offset);
}

bool JsonLexer::number(JsonNumber& out) {
  const size_t begin = pos_;
  const auto digit_here = [&] { return pos_ < text_.size() && is_digit(text_[pos_]); };
  const auto digits = [&] {
    while (digit_here()) ++pos_;
  };
  if (text_[pos_] == '-') ++pos_;
  if (!digit_here()) return unexpected("expected a digit");
  if (text_[pos_] == '0') {
    ++pos_;
    if (digit_here()) return fail(JsonFaultKind::kSyntax, "a number must not begin with 0", begin);
  } else {
    digits();
  }
  out.is_integer = true;
  if (pos_ < text_.size() && text_[pos_] == '.') {
    out.is_integer = false;
    ++pos_;
    if (!digit_here()) return unexpected("expected a digit after the decimal point");
    digits();
  }
  if (pos_ < text_.size() && (text_[pos_] == 'e' || text_[pos_] == 'E')) {
    out.is_integer = false;
    ++pos_;
    if (pos_ < text_.size() && (text_[pos_] == '+' || text_[pos_] == '-')) ++pos_;
    if (!digit_here()) return unexpected("expected a digit in the exponent");
    digits();
  }
  out.raw = text_.substr(begin, pos_ - begin);
  // Short integers and plain fractions, nearly all numbers, cannot overflow.
  const bool can_overflow =
      out.raw.size() > 300 || (!out.is_integer && out.raw.find_first_of("eE") != out.raw.npos);
  return !can_overflow || check_range(out.raw, begin);
}

bool JsonLexer::literal(std::string_view word) {
  if (text_.substr(pos_, word.size()) != word) return unexpected("expected a value");
  pos_ += word.size();
  return true;
}

bool JsonLexer::unexpected(std::string_view wanted) {
  if (at_end()) return fail(JsonFaultKind::kSyntax, str_cat(wanted, ", found the end"), pos_);
  const std::string_view rest = text_.substr(pos_);
  const utf8::Piece piece = utf8::classify(rest);
  if (piece.form != utf8::Form::kComplete) {
    return fail(JsonFaultKind::kEncoding, str_cat("byte ", hex_byte(peek()), " is not valid UTF-8 here"),
                pos_);
  }
  for (std::string_view word :
       {"NaN", "Infinity", "-Infinity", "-NaN", "nan", "inf", "True", "False", "None", "undefined"}) {
    if (rest.substr(0, word.size()) == word) {
      return fail(JsonFaultKind::kSyntax, str_cat(word, " is not JSON"), pos_);
    }
  }
  if (peek() < 0x20 || peek() == 0x7F) {
    return fail(JsonFaultKind::kSyntax, str_cat(wanted, ", found byte ", hex_byte(peek())), pos_);
  }
  return fail(JsonFaultKind::kSyntax, str_cat(wanted, ", found '", rest.substr(0, piece.length), "'"), pos_);
}

void decode_json_string(std::string_view raw, std::string& out) {
  for (size_t i = 0; i < raw.size();) {
    const size_t slash = std::min(raw.find('\\', i), raw.size());
    out.append(raw, i, slash - i);
    if (slash == raw.size()) return;
    const char kind = raw[slash + 1];
    i = slash + 2;
    if (kind != 'u') {
      constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
      const size_t at = kFrom.find(kind);
      out += at == kFrom.npos ? kind : kTo[at];
      continue;
    }
    const auto unit_at = [&](size_t pos) {
      uint32_t unit = 0;
      for (size_t k = pos; k < pos + 4; ++k) unit = unit * 16 + static_cast<uint32_t>(hex_digit(raw[k]));
      return unit;
    };
    const uint32_t unit = unit_at(i);
    i += 4;
    if (is_high_surrogate(unit) && raw.substr(i, 2) == "\\u" && is_low_surrogate(unit_at(i + 2))) {
      utf8::append(out, 0x10000 + ((unit - 0xD800) << 10) + (unit_at(i + 2) - 0xDC00));
      i += 6;
    } else if (is_high_surrogate(unit) || is_low_surrogate(unit)) {
      out += utf8::kReplacement;
    } else {
      utf8::append(out, unit);
    }
  }
}

}  // namespace deepinfer
