#include "engine/forced.h"

#include <bit>

namespace deepinfer {

int32_t only_token(std::span<const uint32_t> mask, int32_t vocab_size) {
  int32_t found = -1;
  for (size_t w = 0; w < mask.size(); ++w) {
    if (mask[w] == 0) continue;
    if (found >= 0 || !std::has_single_bit(mask[w])) return -1;
    found = static_cast<int32_t>(w * 32) + std::countr_zero(mask[w]);
  }
  return found < vocab_size ? found : -1;
}

std::vector<int32_t> forced_tokens(ConstraintMatcher& matcher, int32_t vocab_size, int32_t max_tokens) {
  std::vector<uint32_t> mask((static_cast<size_t>(vocab_size) + 31) / 32);
  std::vector<int32_t> forced;
  while (static_cast<int32_t>(forced.size()) < max_tokens && matcher.fill_mask(mask)) {
    const int32_t token = only_token(mask, vocab_size);
    if (token < 0 || !matcher.accept(token)) break;
    forced.push_back(token);
  }
  if (!forced.empty()) matcher.rollback(static_cast<int>(forced.size()));
  return forced;
}

}  // namespace deepinfer
