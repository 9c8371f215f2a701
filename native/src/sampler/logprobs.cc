// Log-probabilities of the model's own distribution.
#include <algorithm>

#include "deepinfer/sampling.h"
#include "sampler/fixed_math.h"
#include "sampler/row_ops.h"
#include "sampler/select.h"

namespace deepinfer {

std::string why_not_finite(std::span<const float> logits) {
  const RowMax top = row_ops().find_max(logits.data(), logits.size());
  return top.is_finite ? "" : "the model gave logits that are not finite";
}

TokenLogprobs score_token(std::span<const float> logits, int32_t token, int32_t num_top) {
  const RowOps& ops = row_ops();
  return score_token(ops, logits, ops.find_max(logits.data(), logits.size()).max, token, num_top);
}

TokenLogprobs score_token(const RowOps& ops, std::span<const float> logits, float max, int32_t token,
                          int32_t num_top) {
  const double log_sum = fixed_log(ops.sum_exp(logits.data(), logits.size(), max));
  const auto logprob = [&](float logit) {
    return static_cast<float>((static_cast<double>(logit) - static_cast<double>(max)) - log_sum);
  };
  const float own = logits[static_cast<size_t>(token)];
  TokenLogprobs result;
  result.token = token;
  result.logprob = logprob(own);
  result.rank = 1 + ops.count_better(logits.data(), logits.size(), own, token);
  if (num_top <= 0) return result;
  std::vector<int32_t> ids;
  std::vector<Candidate> best;
  select_top_k(ops, logits, num_top, ids, best);
  std::ranges::sort(best, comes_before);
  for (const Candidate& candidate : best) result.top.emplace_back(candidate.id, logprob(candidate.logit));
  return result;
}

}  // namespace deepinfer
