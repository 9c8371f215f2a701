#include "sampler/adjust.h"

#include <limits>

namespace deepinfer {
namespace {

float penalised(float score, const TokenCount& count, const SamplingParams& p) {
  if (p.repetition_penalty != 1.0f)
    score = score > 0 ? score / p.repetition_penalty : score * p.repetition_penalty;
  if (count.num_output > 0)
    score -= p.presence_penalty + p.frequency_penalty * static_cast<float>(count.num_output);
  return score;
}

}  // namespace

bool adjust_row(const RowOps& ops, const SampleInput& input, std::vector<float>& scores) {
  const SamplingParams& params = *input.params;
  if (input.counts == nullptr && params.logit_bias.empty() && input.held.empty() && input.mask.empty())
    return false;
  scores.assign(input.logits.begin(), input.logits.end());
  const auto at = [&](int32_t token) -> float& { return scores[static_cast<size_t>(token)]; };
  // Each token's score depends on its own count alone, so the order of the table does not matter.
  if (input.counts != nullptr)
    for (const auto& [token, count] : *input.counts) at(token) = penalised(at(token), count, params);
  for (const auto& [token, bias] : params.logit_bias) at(token) += bias;
  for (const int32_t token : input.held) at(token) = -std::numeric_limits<float>::infinity();
  if (!input.mask.empty()) ops.apply_mask(scores.data(), scores.size(), input.mask.data());
  return true;
}

}  // namespace deepinfer
