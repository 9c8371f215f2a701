#include "text/pre_tokenizer.h"

#include <array>

#include "deepinfer/status.h"
#include "text/unicode_class.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

struct Named {
  const char* name;
  PreTokenizer kind;
};
// GGUF files have several names for some; a file that names none means gpt-2.
constexpr std::array<Named, 8> kNamed = {{{"gpt-2", PreTokenizer::kGpt2},
                                          {"default", PreTokenizer::kGpt2},
                                          {"smollm", PreTokenizer::kSmollm},
                                          {"llama-bpe", PreTokenizer::kLlama3},
                                          {"llama3", PreTokenizer::kLlama3},
                                          {"llama-v3", PreTokenizer::kLlama3},
                                          {"qwen2", PreTokenizer::kQwen2},
                                          {"deepseek-v3", PreTokenizer::kDeepseek3}}};

// One character, or one byte that is not UTF-8 (of class kOther), or the end (length 0).
struct Char {
  uint32_t code = 0;
  size_t length = 0;
  CharClass kind = CharClass::kOther;  // marks, signs and new numbers are others
  CharClass fine = CharClass::kOther;  // with all classes

  bool ends() const { return length == 0; }
  bool is(CharClass k) const { return length != 0 && kind == k; }
  bool is_newline() const { return code == '\r' || code == '\n'; }
  bool is_sign() const { return fine == CharClass::kSign; }
  bool is_letter_or_mark() const { return fine == CharClass::kLetter || fine == CharClass::kMark; }
  bool is_ascii_letter() const { return code < 0x80 && kind == CharClass::kLetter; }
};

constexpr std::array<CharClass, 128> ascii_classes() {
  std::array<CharClass, 128> out{};
  for (int c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || (c >= 9 && c <= 13);
    out[static_cast<size_t>(c)] = letter                 ? CharClass::kLetter
                                  : c >= '0' && c <= '9' ? CharClass::kNumber
                                  : space                ? CharClass::kSpace
                                  : c > ' ' && c < 127   ? CharClass::kSign
                                                         : CharClass::kOther;
  }
  return out;
}
constexpr std::array<CharClass, 128> kAscii = ascii_classes();

// Without what only some patterns tell apart.
constexpr CharClass coarse(CharClass kind) { return kind <= CharClass::kSpace ? kind : CharClass::kOther; }

Char char_at(std::string_view text, size_t at) {
  if (at >= text.size()) return {};
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data()) + at;
  if (bytes[0] < 0x80) return {bytes[0], 1, coarse(kAscii[bytes[0]]), kAscii[bytes[0]]};
  const utf8::Piece piece = utf8::classify(bytes, text.size() - at);
  if (piece.form != utf8::Form::kComplete) return {0xFFFFFFFF, 1, CharClass::kOther, CharClass::kOther};
  const uint32_t code = utf8::decode(bytes, piece.length);
  const CharClass kind = char_class(code);
  return {code, piece.length, coarse(kind), kind};
}

// End of the run of characters of class `kind` that begins at `at`.
size_t run_end(std::string_view text, size_t at, CharClass kind) {
  for (;;) {
    const Char c = char_at(text, at);
    if (!c.is(kind)) return at;
    at += c.length;
  }
}

// 's 't 're 've 'm 'll 'd at `at`, where an apostrophe stands; 0 when there is none of them.
size_t contraction_bytes(std::string_view text, size_t at, bool any_case) {
  const std::string_view rest = text.substr(at + 1, 2);
  const auto lower = [&](size_t i) {
    const char c = i < rest.size() ? rest[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char a = lower(0), b = lower(1);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  if (any_case && rest == "\xC5\xBF") return 3;  // U+017F, the long s, folds to s
  return 0;
}

// A run of white space at `at`: \s+(?!\S)|\s+ takes all of it before the end of the text, else all but
// its last character, which then begins the next word; a single character is taken.
size_t space_end(std::string_view text, size_t at) {
  size_t last = at, end = at;
  for (Char c = char_at(text, end); c.is(CharClass::kSpace); c = char_at(text, end)) {
    last = end;
    end += c.length;
  }
  return end == text.size() || last == at ? end : last;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ where white space begins.
size_t space_or_lines_end(std::string_view text, size_t at) {
  // The first reaches behind the last line end of the white space, if there is one.
  size_t behind_newline = 0;
  size_t end = at;
  for (Char c = char_at(text, at); c.is(CharClass::kSpace); c = char_at(text, end)) {
    end += c.length;
    if (c.is_newline()) behind_newline = end;
  }
  return behind_newline != 0 ? behind_newline : space_end(text, at);
}

// \p{N}{1,n} where a number stands.
size_t digits_end(std::string_view text, size_t at, int max_digits) {
  for (int i = 0; i < max_digits; ++i) {
    const Char c = char_at(text, at);
    if (!c.is(CharClass::kNumber)) break;
    at += c.length;
  }
  return at;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t gpt2_word_end(std::string_view text, size_t at) {
  const Char first = char_at(text, at);
  if (first.code == '\'') {
    if (const size_t bytes = contraction_bytes(text, at, false); bytes != 0) return at + bytes;
  }
  size_t body = at;
  Char c = first;
  if (first.code == ' ') {
    body += 1;
    c = char_at(text, body);
  }
  if (!c.ends() && c.kind != CharClass::kSpace) return run_end(text, body, c.kind);
  return space_end(text, at);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,n}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+     with n = 3 for llama 3 and 1 for qwen 2
size_t llama3_word_end(std::string_view text, size_t at, int max_digits) {
  const Char first = char_at(text, at);
  if (first.code == '\'') {
    if (const size_t bytes = contraction_bytes(text, at, true); bytes != 0) return at + bytes;
  }
  if (first.kind == CharClass::kLetter) return run_end(text, at, CharClass::kLetter);
  if (first.kind == CharClass::kNumber) return digits_end(text, at, max_digits);
  const size_t next = at + first.length;
  const Char second = char_at(text, next);
  if (!first.is_newline() && second.is(CharClass::kLetter)) return run_end(text, next, CharClass::kLetter);
  const bool spaced = first.code == ' ' && second.is(CharClass::kOther);
  if (first.kind == CharClass::kOther || spaced) {
    size_t end = run_end(text, spaced ? next : at, CharClass::kOther);
    while (char_at(text, end).is_newline()) ++end;
    return end;
  }
  return space_or_lines_end(text, at);
}

template <typename WordEnd>
void cut(std::string_view text, const WordEnd& word_end, std::vector<std::string_view>& words) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = word_end(text, at);
    words.push_back(text.substr(at, end - at));
    at = end;
  }
}

// Every number alone, what lies between cut as by gpt2.
void cut_smollm(std::string_view text, std::vector<std::string_view>& words) {
  size_t begin = 0;
  for (size_t at = 0; at <= text.size();) {
    const Char c = char_at(text, at);
    const bool number = c.is(CharClass::kNumber) || (c.length > 1 && c.kind == CharClass::kOther &&
                                                     char_class(c.code) == CharClass::kNewNumber);
    if (number || c.ends()) {
      cut(text.substr(begin, at - begin), gpt2_word_end, words);
      if (c.ends()) return;
      words.push_back(text.substr(at, c.length));
      begin = at + c.length;
    }
    at += c.length;
  }
}

// End of the run of characters from `at` of which `belongs` is true.
template <typename Belongs>
size_t end_of_those(std::string_view text, size_t at, const Belongs& belongs) {
  for (Char c = char_at(text, at); !c.ends() && belongs(c); c = char_at(text, at)) at += c.length;
  return at;
}

// [ASCII sign][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|
// \s+     `at` itself where none of them fits.
size_t deepseek3_word_end(std::string_view text, size_t at) {
  const Char first = char_at(text, at);
  const size_t next = at + first.length;
  const Char second = char_at(text, next);
  const auto letters_end = [&](size_t from) {
    return end_of_those(text, from, [](const Char& c) { return c.is_letter_or_mark(); });
  };
  if (first.is_sign() && first.code < 0x80 && second.is_ascii_letter()) {
    return end_of_those(text, next, [](const Char& c) { return c.is_ascii_letter(); });
  }
  if (first.is_letter_or_mark()) return letters_end(at);
  if (!first.is_newline() && !first.is_sign() && second.is_letter_or_mark()) return letters_end(next);
  if (first.is_sign() || (first.code == ' ' && second.is_sign())) {
    const size_t end = end_of_those(text, next, [](const Char& c) { return c.is_sign(); });
    return end_of_those(text, end, [](const Char& c) { return c.is_newline(); });
  }
  return first.is(CharClass::kSpace) ? space_or_lines_end(text, at) : at;
}

// The words of a piece; what lies between them is one too.
void cut_deepseek3_piece(std::string_view text, std::vector<std::string_view>& words) {
  size_t begin = 0;  // of what is not yet in a word
  for (size_t at = 0; at < text.size();) {
    const size_t end = deepseek3_word_end(text, at);
    if (end == at) {
      at += char_at(text, at).length;
      continue;
    }
    if (at > begin) words.push_back(text.substr(begin, at - begin));
    words.push_back(text.substr(at, end - at));
    begin = at = end;
  }
  if (begin < text.size()) words.push_back(text.substr(begin));
}

bool is_cjk_or_kana(const Char& c) {
  return (c.code >= 0x4E00 && c.code <= 0x9FA5) || (c.code >= 0x3040 && c.code <= 0x30FF);
}

// Numbers in threes first, then runs of Chinese and kana, then words in each piece between and in the runs.
void cut_deepseek3(std::string_view text, std::vector<std::string_view>& words) {
  const auto cut_piece = [&](size_t begin, size_t end) {
    cut_deepseek3_piece(text.substr(begin, end - begin), words);
  };
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text, at);
    const bool is_number = c.is(CharClass::kNumber);
    if (!is_number && !is_cjk_or_kana(c)) {
      at += c.length;
      continue;
    }
    cut_piece(begin, at);
    const size_t end = is_number ? digits_end(text, at, 3) : end_of_those(text, at, is_cjk_or_kana);
    if (is_number) {
      words.push_back(text.substr(at, end - at));
    } else {
      cut_piece(at, end);
    }
    begin = at = end;
  }
  cut_piece(begin, text.size());
}

}  // namespace

PreTokenizer find_pre_tokenizer(std::string_view name) {
  for (const Named& named : kNamed) {
    if (name == named.name) return named.kind;
  }
  std::string known;
  for (const Named& named : kNamed) known += std::string(known.empty() ? "" : ", ") + named.name;
  fail(ErrorCode::kUnsupported, "the pre-tokenizer \"", name, "\" is not known, supported are ", known);
}

const std::vector<std::string>& pre_tokenizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Named& named : kNamed) out.emplace_back(named.name);
    return out;
  }();
  return names;
}

void pre_tokenize(PreTokenizer kind, std::string_view text, std::vector<std::string_view>& words) {
  switch (kind) {
    case PreTokenizer::kGpt2: return cut(text, gpt2_word_end, words);
    case PreTokenizer::kSmollm: return cut_smollm(text, words);
    case PreTokenizer::kLlama3:
      return cut(text, [](std::string_view t, size_t at) { return llama3_word_end(t, at, 3); }, words);
    case PreTokenizer::kQwen2:
      return cut(text, [](std::string_view t, size_t at) { return llama3_word_end(t, at, 1); }, words);
    case PreTokenizer::kDeepseek3: return cut_deepseek3(text, words);
  }
}

}  // namespace deepinfer
