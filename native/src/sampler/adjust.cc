#include "sampler/adjust.h"

#include <bit>
#include <limits>

namespace deepinfer {
namespace {

constexpr size_t kFew = 512;       // tokens that a mask may allow, to be looked at one by one ...
constexpr size_t kFewBiases = 16;  // ... and biases, each a look for every token

float penalised(float score, const TokenCount& count, const SamplingParams& p) {
  if (p.repetition_penalty != 1.0f)
    score = score > 0 ? score / p.repetition_penalty : score * p.repetition_penalty;
  if (count.num_output > 0)
    score -= p.presence_penalty + p.frequency_penalty * static_cast<float>(count.num_output);
  return score;
}

bool has_edits(const SampleInput& input) {
  return input.counts != nullptr || !input.params->logit_bias.empty() || !input.held.empty();
}

// Each token's score depends on its own count alone, so the order of the table does not matter.
void edit(const SampleInput& input, std::vector<float>& scores) {
  const SamplingParams& params = *input.params;
  const auto at = [&](int32_t token) -> float& { return scores[static_cast<size_t>(token)]; };
  if (input.counts != nullptr)
    for (const auto& [token, count] : *input.counts) at(token) = penalised(at(token), count, params);
  for (const auto& [token, bias] : params.logit_bias) at(token) += bias;
  for (const int32_t token : input.held) at(token) = -std::numeric_limits<float>::infinity();
}

// The same for one token.
float edited(const SampleInput& input, int32_t token) {
  float score = input.logits[static_cast<size_t>(token)];
  if (input.counts != nullptr)
    if (const auto count = input.counts->find(token); count != input.counts->end())
      score = penalised(score, count->second, *input.params);
  for (const auto& [biased, bias] : input.params->logit_bias)
    if (biased == token) score += bias;
  for (const int32_t held : input.held)
    if (held == token) score = -std::numeric_limits<float>::infinity();
  return score;
}

}  // namespace

AdjustedRow adjust_row(const RowOps& ops, const SampleInput& input, std::vector<float>& scores) {
  const float* const logits = input.logits.data();
  const size_t size = input.logits.size();
  AdjustedRow row{input.logits, {}, {}};
  if (!has_edits(input) && !input.mask.empty()) {
    scores.resize(size);
    row.top = ops.mask_row(logits, scores.data(), size, input.mask.data(), row.raw);
    row.scores = scores;
    return row;
  }
  row.raw = row.top = ops.find_max(logits, size);
  if (!has_edits(input)) return row;
  scores.assign(input.logits.begin(), input.logits.end());
  edit(input, scores);
  RowMax edited_raw;
  row.top = input.mask.empty()
                ? ops.find_max(scores.data(), size)
                : ops.mask_row(scores.data(), scores.data(), size, input.mask.data(), edited_raw);
  row.scores = scores;
  return row;
}

bool gather_few(const SampleInput& input, std::vector<Candidate>& candidates) {
  if (input.mask.empty() || input.params->logit_bias.size() > kFewBiases) return false;
  size_t num_allowed = 0;
  for (const uint32_t word : input.mask) num_allowed += static_cast<size_t>(std::popcount(word));
  if (num_allowed > kFew) return false;
  candidates.clear();
  for (size_t w = 0; w < input.mask.size(); ++w)
    for (uint32_t bits = input.mask[w]; bits != 0; bits &= bits - 1) {
      const int32_t token = static_cast<int32_t>(w * 32) + std::countr_zero(bits);
      if (static_cast<size_t>(token) < input.logits.size())
        candidates.push_back({edited(input, token), token});
    }
  return true;
}

}  // namespace deepinfer
