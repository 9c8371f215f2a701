// Byte-level BPE: text to token ids without Python, equal to the `tokenizers` library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer {

struct BpeSpec {
  std::vector<std::string> tokens;  // bytes of every id (not their printable stand-ins); empty where no
                                    // ordinary word can become this token
  std::vector<std::pair<int32_t, int32_t>> merges;  // pairs of ids, best first
  std::string pre;  // how text is cut into words: one of BpeTokenizer::known_pre()
  std::vector<std::pair<std::string, int32_t>> specials;  // cut out of the text first, when asked for
  std::vector<std::pair<std::string, int32_t>> added;     // cut out of the text first, always
  std::vector<std::string> late;  // those of both that are looked for in what lies between the others
  bool ignore_merges = false;     // a word that is a token is that token, whatever the merges say (llama 3)
  bool nfc = false;               // text between special tokens is brought to NFC first (qwen 2)
};

// Immutable and thread-safe.
class BpeTokenizer {
 public:
  // Throws Error{kUnsupported} on an unknown pre-tokenizer, Error{kBadFile} on data that does not fit
  // together.
  explicit BpeTokenizer(BpeSpec spec);
  ~BpeTokenizer();

  static const std::vector<std::string>& known_pre();  // "gpt-2", "smollm", ...: GGUF spellings

  // Special and added tokens are found leftmost, then longest, the late ones in a second pass. A byte that is
  // not UTF-8 is a symbol of its own; a byte for which there is no token is left out, as the library does
  // without an unknown token.
  std::vector<int32_t> encode(std::string_view text, bool parse_special) const;

  // The words that are encoded one by one, in order; only cut, neither normalised nor searched for specials.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace deepinfer
