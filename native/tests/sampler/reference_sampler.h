// The sampler's definition in its plainest form: full sorts, one loop per rule. Slow, and equal to the bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "deepinfer/sampling.h"
#include "sampler/fixed_math.h"
#include "sampler/noise.h"
#include "sampler/row_ops.h"

namespace deepinfer::testing {

inline std::vector<float> reference_scores(const SampleInput& in) {
  const SamplingParams& p = *in.params;
  std::vector<float> s(in.logits.begin(), in.logits.end());
  for (size_t v = 0; v < s.size(); ++v) {
    const auto id = static_cast<int32_t>(v);
    if (in.counts != nullptr && in.counts->contains(id)) {
      const TokenCount& c = in.counts->at(id);
      if (p.repetition_penalty != 1.0f)
        s[v] = s[v] > 0 ? s[v] / p.repetition_penalty : s[v] * p.repetition_penalty;
      if (c.num_output > 0)
        s[v] -= p.presence_penalty + p.frequency_penalty * static_cast<float>(c.num_output);
    }
    for (const auto& [token, bias] : p.logit_bias)
      if (token == id) s[v] += bias;
    for (const int32_t token : in.held)
      if (token == id) s[v] = -std::numeric_limits<float>::infinity();
    if (!in.mask.empty() && !(in.mask[v / 32] >> (v % 32) & 1))
      s[v] = -std::numeric_limits<float>::infinity();
  }
  return s;
}

// Ids that may be chosen, best first.
inline std::vector<int32_t> reference_kept(const std::vector<float>& s, const SamplingParams& p) {
  std::vector<int32_t> order(s.size());
  for (size_t i = 0; i < s.size(); ++i) order[i] = static_cast<int32_t>(i);
  const auto at = [&](int32_t id) { return s[static_cast<size_t>(id)]; };
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return at(a) > at(b); });
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < order.size()) order.resize(static_cast<size_t>(p.top_k));
  const float max = at(order[0]), scale = 1.0f / p.temperature;
  if (p.top_p < 1.0f) {
    uint64_t total = 0, sum = 0;
    for (const int32_t id : order) total += weight_of((at(id) - max) * scale);
    const double target = static_cast<double>(p.top_p) * static_cast<double>(total);
    size_t kept = 0;
    while (static_cast<double>(sum) < target) sum += weight_of((at(order[kept++]) - max) * scale);
    order.resize(kept);
  }
  std::erase_if(order, [&](int32_t id) {
    if (at(id) == -std::numeric_limits<float>::infinity()) return true;
    return p.min_p > 0 &&
           at(id) < std::min(max, max + static_cast<float>(fixed_log(static_cast<double>(p.min_p))) / scale);
  });
  return order;
}

inline int32_t reference_sample(const SampleInput& in) {
  const std::vector<float> s = reference_scores(in);
  const auto best = static_cast<int32_t>(std::ranges::max_element(s) - s.begin());
  if (in.params->temperature < kMinTemperature) return best;
  const float max = s[static_cast<size_t>(best)], scale = 1.0f / in.params->temperature;
  const TokenNoise noise(in.key);
  int32_t winner = -1;
  double winning = 0;
  std::vector<int32_t> kept = reference_kept(s, *in.params);
  std::ranges::sort(kept);
  for (const int32_t id : kept) {
    const double score = static_cast<double>((s[static_cast<size_t>(id)] - max) * scale) +
                         fixed_gumbel(noise.bits(static_cast<uint32_t>(id)));
    if (winner >= 0 && score <= winning) continue;
    winner = id;
    winning = score;
  }
  return winner;
}

}  // namespace deepinfer::testing
