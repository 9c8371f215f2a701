#include "deepinfer/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace deepinfer {
namespace {

struct LogSoftmax {
  int32_t token = -1;
  double normaliser = 0;  // log of the sum of exp(logit)
};

// A token of -1 says that the row is empty or holds something that is no number.
LogSoftmax normalise(const float* logits, int32_t vocab_size) {
  int32_t best = -1;
  for (int32_t i = 0; i < vocab_size; ++i) {
    if (!std::isfinite(logits[i])) return {};
    if (best < 0 || logits[i] > logits[best]) best = i;
  }
  if (best < 0) return {};
  const double top = logits[best];
  double sum = 0;
  for (int32_t i = 0; i < vocab_size; ++i) sum += std::exp(static_cast<double>(logits[i]) - top);
  return {best, top + std::log(sum)};
}

}  // namespace

LogitDivergence logit_divergence(const float* base, const float* other, int32_t vocab_size) {
  const LogSoftmax p = normalise(base, vocab_size);
  const LogSoftmax q = normalise(other, vocab_size);
  LogitDivergence result{std::numeric_limits<double>::quiet_NaN(), p.token, q.token};
  if (p.token < 0 || q.token < 0) return result;
  double kl = 0;
  for (int32_t i = 0; i < vocab_size; ++i) {
    const double log_p = static_cast<double>(base[i]) - p.normaliser;
    const double log_q = static_cast<double>(other[i]) - q.normaliser;
    kl += std::exp(log_p) * (log_p - log_q);
  }
  result.kl = std::max(kl, 0.0);  // rounding can leave a tiny negative sum for equal rows
  return result;
}

}  // namespace deepinfer
