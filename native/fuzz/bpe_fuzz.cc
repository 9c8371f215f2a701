// Any bytes as text, the first choosing the pre-tokenizer: words must be the text, ids must be the merges
// that the definition makes.
#include <array>
#include <iterator>
#include <map>
#include <vector>

#include "deepinfer/bpe.h"
#include "fuzz.h"
#include "text/nfc.h"

using namespace deepinfer;

namespace {

constexpr int32_t kSpecial = 300;
constexpr std::string_view kSpecialText = "<s>";

BpeSpec make_spec(const std::string& pre) {
  BpeSpec spec;
  spec.tokens.resize(static_cast<size_t>(kSpecial) + 1);
  for (size_t b = 0; b < 256; ++b) spec.tokens[b] = std::string(1, static_cast<char>(b));
  constexpr std::array<std::pair<int, int>, 14> kMerges = {{{'a', 'a'},
                                                            {'a', 'b'},
                                                            {256, 256},
                                                            {257, 256},
                                                            {' ', 'a'},
                                                            {'b', 257},
                                                            {0xC3, 0xA9},
                                                            {'1', '2'},
                                                            {258, 258},
                                                            {'\n', '\n'},
                                                            {0xE2, 0x82},
                                                            {266, 0xAC},
                                                            {' ', ' '},
                                                            {259, 261}}};
  for (size_t i = 0; i < kMerges.size(); ++i) {
    const auto [left, right] = kMerges[i];
    spec.merges.emplace_back(left, right);
    spec.tokens[256 + i] = spec.tokens[static_cast<size_t>(left)] + spec.tokens[static_cast<size_t>(right)];
  }
  spec.pre = pre;
  spec.specials = {{std::string(kSpecialText), kSpecial}};
  return spec;
}

// The definition: the lowest rank of all pairs, the leftmost of those, merged until there is none.
void merge_plainly(const BpeSpec& spec, std::string_view word, std::vector<int32_t>& out) {
  std::vector<int32_t> symbols;
  for (const char c : word) symbols.push_back(static_cast<unsigned char>(c));
  for (;;) {
    size_t best_rank = spec.merges.size(), best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (spec.merges[rank] == std::pair(symbols[i], symbols[i + 1])) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best_rank == spec.merges.size()) break;
    symbols[best] = static_cast<int32_t>(256 + best_rank);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
}

void check_pre(const std::string& pre, std::string_view text) {
  static std::map<std::string, std::pair<BpeSpec, BpeTokenizer>> built;
  auto at = built.find(pre);
  if (at == built.end()) {
    at = built
             .try_emplace(pre, std::piecewise_construct, std::forward_as_tuple(make_spec(pre)),
                          std::forward_as_tuple(make_spec(pre)))
             .first;
  }
  const auto& [spec, tokenizer] = at->second;
  std::string joined;
  std::vector<int32_t> wanted;
  for (const std::string_view word : tokenizer.split(text)) {
    FUZZ_CHECK(!word.empty());
    joined += word;
    merge_plainly(spec, word, wanted);
  }
  FUZZ_CHECK(joined == text);
  FUZZ_CHECK(tokenizer.encode(text, false) == wanted);
  std::string spelled;
  for (const int32_t id : tokenizer.encode(text, true)) {
    spelled += id == kSpecial ? std::string(kSpecialText) : spec.tokens[static_cast<size_t>(id)];
  }
  FUZZ_CHECK(spelled == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 400) return 0;
  constexpr const char* kPres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-v3"};
  const std::string_view text = fuzz::text_of(data + 1, size - 1);
  check_pre(kPres[data[0] % std::size(kPres)], text);
  std::string once, twice;
  to_nfc(text, once);
  to_nfc(once, twice);
  FUZZ_CHECK(once == twice);
  FUZZ_CHECK(fuzz::is_utf8(once) == fuzz::is_utf8(text));
  return 0;
}
