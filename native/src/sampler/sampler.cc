#include <algorithm>
#include <limits>

#include "deepinfer/sampling.h"
#include "deepinfer/status.h"
#include "sampler/adjust.h"
#include "sampler/fixed_math.h"
#include "sampler/row_ops.h"
#include "sampler/select.h"

namespace deepinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// As RowOps::gumbel_argmax, over a few candidates.
int32_t gumbel_argmax(const std::vector<Candidate>& candidates, float max, float scale, const Border& border,
                      const TokenNoise& noise) {
  int32_t winner = -1;
  double best = -std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates) {
    if (!border.includes(c.logit, c.id)) continue;
    const float x = (c.logit - max) * scale;
    const auto id = static_cast<uint32_t>(c.id);
    if (static_cast<double>(x + gumbel_bound(noise.high(id))) < best - 1e-3)
      continue;  // saves two logarithms
    const double s = static_cast<double>(x) + fixed_gumbel(noise.bits(id));
    if (s < best || (s == best && c.id >= winner)) continue;
    best = s;
    winner = c.id;
  }
  return winner;
}

// min_p bounds a ratio of probabilities, so it is a threshold on logits. A logit of -infinity is never kept.
Border min_p_border(float max, float scale, float min_p, size_t size) {
  float threshold = -std::numeric_limits<float>::max();
  if (min_p > 0)
    threshold = std::max(threshold, max + static_cast<float>(fixed_log(static_cast<double>(min_p))) / scale);
  return {std::min(threshold, max), static_cast<int32_t>(size)};
}

int32_t choose(const RowOps& ops, std::span<const float> scores, const RowMax& top, const SampleInput& input,
               SamplerScratch& scratch) {
  const SamplingParams& params = *input.params;
  if (params.temperature < kMinTemperature) return top.index;
  const float scale = 1.0f / params.temperature;
  const TokenNoise noise(input.key);
  Border border = min_p_border(top.max, scale, params.min_p, scores.size());
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < scores.size()) {
    select_top_k(ops, scores, params.top_k, scratch.ids, scratch.candidates);
    if (params.top_p < 1.0f) cut_top_p(scratch.candidates, top.max, scale, params.top_p);
    return gumbel_argmax(scratch.candidates, top.max, scale, border, noise);
  }
  if (params.top_p < 1.0f) {
    const TopP kept =
        select_top_p(ops, scores, top.max, scale, params.top_p, scratch.ids, scratch.candidates);
    if (border.includes(kept.border.logit, kept.border.id)) border = kept.border;  // the stricter of the two
    if (kept.has_all) return gumbel_argmax(scratch.candidates, top.max, scale, border, noise);
  }
  return ops.gumbel_argmax(scores.data(), scores.size(), top.max, scale, border, noise, top.index);
}

// Among all tokens that a mask allows, with their scores in `candidates`, ascending by id.
int32_t choose_of_few(const RowMax& top, const SampleInput& input, std::vector<Candidate>& candidates) {
  const SamplingParams& params = *input.params;
  if (params.temperature < kMinTemperature) return top.index;
  const float scale = 1.0f / params.temperature;
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < candidates.size()) {
    std::ranges::nth_element(candidates, candidates.begin() + params.top_k, comes_before);
    candidates.resize(static_cast<size_t>(params.top_k));
  }
  if (params.top_p < 1.0f) cut_top_p(candidates, top.max, scale, params.top_p);
  const Border border = min_p_border(top.max, scale, params.min_p, input.logits.size());
  return gumbel_argmax(candidates, top.max, scale, border, TokenNoise(input.key));
}

RowMax max_of(const std::vector<Candidate>& candidates) {
  RowMax top{-kInfinity, 0, true};
  for (const Candidate& c : candidates) {
    top.is_finite = top.is_finite && c.logit < kInfinity;
    if (c.logit > top.max) top = {c.logit, c.id, top.is_finite};
  }
  top.is_finite = top.is_finite && top.max > -kInfinity;
  return top;
}

}  // namespace

SampleOutput sample_row(const SampleInput& input, SamplerScratch& scratch) {
  const RowOps& ops = row_ops();
  SampleOutput output;
  const bool is_few = gather_few(input, scratch.candidates);
  AdjustedRow row;
  if (is_few) {
    row.raw = ops.find_max(input.logits.data(), input.logits.size());
    row.top = max_of(scratch.candidates);
  } else {
    row = adjust_row(ops, input, scratch.scores);
  }
  if (!row.raw.is_finite) {
    output.error = "the model gave logits that are not finite";
    return output;
  }
  if (!row.top.is_finite) {
    output.error = row.top.max == -kInfinity
                       ? "no token is allowed here: the mask, biases and min_tokens exclude all"
                       : "the penalties made scores that are not finite";
    return output;
  }
  output.token = is_few ? choose_of_few(row.top, input, scratch.candidates)
                        : choose(ops, row.scores, row.top, input, scratch);
  DI_CHECK(output.token >= 0);
  output.best = row.top.index;
  if (input.params->top_logprobs >= 0)
    output.logprobs = score_token(ops, input.logits, row.raw.max, output.token, input.params->top_logprobs);
  return output;
}

}  // namespace deepinfer
