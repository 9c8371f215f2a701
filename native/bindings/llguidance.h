// The constraint engine llguidance, called through the C functions that its Python wheel exports. Nothing of
// Python is needed once the library is loaded, so any thread may compile, clone and match.
//
// What a wheel exports is no promise of its makers: the version is pinned, every function is looked up and
// the layout of what is passed is checked when the library is opened. Where that fails the Python road does
// the same work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/bpe.h"
#include "deepinfer/constraint.h"

namespace deepinfer::bindings {

// What the matchers need to know of a vocabulary.
struct ConstraintVocabulary {
  std::vector<std::string> tokens;  // [vocab_size] bytes of every id; special ones have their spelling here
  std::vector<bool> special;        // [vocab_size] never inside a text
  std::vector<int32_t> eos_token_ids;       // not empty; allowed where a text may end
  std::shared_ptr<const BpeTokenizer> bpe;  // how the model itself would spell a forced text; null = unknown,
                                            // then nothing is forced and every spelling is allowed
};

inline constexpr size_t kMaxLexerStates = 50'000;  // 1 to 2 KB each, of every matcher; usual: some hundred

// Parts of the vocabulary whose tokens are allowed or refused together: white space, and pieces of strings by
// length, finer than the library's own, which a limit on the length of a string defeats (a quarter of the
// time of masks in JSON strings). They change no mask.
#define DI_PIECE "[^\"\\\\\\x00-\\x1F\\x7F]"
inline constexpr std::array<const char*, 9> kSlices = {
    "[\\x20\\x0A\\x0D\\x09]+", DI_PIECE "{1,4}",  DI_PIECE "{1,8}",
    DI_PIECE "{1,12}",         DI_PIECE "{1,16}", DI_PIECE "{1,24}",
    DI_PIECE "{1,32}",         DI_PIECE "+",      nullptr};
#undef DI_PIECE

// The bytes of `text` as the model spells them; where its tokenizer would change them, byte by byte.
std::vector<int32_t> spell(const BpeTokenizer& bpe, const std::vector<std::string>& pieces,
                           std::string_view text);

// Thread-safe.
class Llguidance {
 public:
  // Throws Error{kUnsupported} naming what of `library` (the path of the wheel's extension) does not fit,
  // Error{kBadRequest} when the vocabulary cannot be used.
  Llguidance(const std::string& library, ConstraintVocabulary vocabulary);
  ~Llguidance();

  // `grammar`: llguidance's JSON list of grammars when it begins with a brace, else its Lark dialect. Throws
  // Error{kBadRequest} with the engine's reason, also when only the first mask or the first token shows it.
  std::shared_ptr<const ConstraintTemplate> compile(const std::string& grammar) const;

  struct Impl;

 private:
  std::shared_ptr<const Impl> impl_;  // templates and matchers outlive this object
};

}  // namespace deepinfer::bindings
