// How far one next-token distribution is from another: what quantising or altering a model costs.
#pragma once

#include <cstdint>

namespace deepinfer {

struct LogitDivergence {
  double kl = 0;            // KL(base || other) in nats, >= 0; NaN when either row holds a non-finite value
  int32_t base_token = -1;  // most likely token of each; ties go to the lower id; -1 when not finite
  int32_t other_token = -1;
};

// Both rows are logits [vocab_size]; sums run in double precision and in the order of ids.
LogitDivergence logit_divergence(const float* base, const float* other, int32_t vocab_size);

}  // namespace deepinfer
