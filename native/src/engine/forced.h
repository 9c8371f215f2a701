// Tokens that a constraint leaves no choice about.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deepinfer/constraint.h"

namespace deepinfer {

// The one token that the mask allows among the first `vocab_size`; -1 when there is none, or more than one.
int32_t only_token(std::span<const uint32_t> mask, int32_t vocab_size);

// Up to `max_tokens` tokens of which each is the only one allowed after those before it. The matcher is left
// as it was, unless it fails on the way.
std::vector<int32_t> forced_tokens(ConstraintMatcher& matcher, int32_t vocab_size, int32_t max_tokens);

}  // namespace deepinfer
