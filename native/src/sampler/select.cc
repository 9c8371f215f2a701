#include "sampler/select.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "deepinfer/status.h"

namespace deepinfer {
namespace {

constexpr size_t kFewCandidates = 256;  // below, halving beats a pass with bins
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void gather(std::span<const float> row, const std::vector<int32_t>& ids, std::vector<Candidate>& out) {
  out.clear();
  for (const int32_t id : ids) out.push_back({row[static_cast<size_t>(id)], id});
}

// A logit that at least k tokens reach: the k-th best of many maxima over disjoint parts of the row.
float safe_threshold(const RowOps& ops, std::span<const float> row, size_t k) {
  std::array<float, 1024> maxima;
  const size_t num_maxima = k <= 64 ? 256 : 1024;
  if (k > num_maxima / 2) return -kInfinity;
  ops.strided_maxima(row.data(), row.size(), maxima.data(), num_maxima);
  const auto kth = maxima.begin() + static_cast<std::ptrdiff_t>(k) - 1;
  std::nth_element(maxima.begin(), kth, maxima.begin() + static_cast<std::ptrdiff_t>(num_maxima),
                   std::greater<>());
  return *kth;
}

uint64_t weigh(std::span<const Candidate> candidates, float max, float scale) {
  uint64_t sum = 0;
  for (const Candidate& c : candidates) sum += weight_of((c.logit - max) * scale);
  return sum;
}

}  // namespace

void select_top_k(const RowOps& ops, std::span<const float> row, int32_t k, std::vector<int32_t>& ids,
                  std::vector<Candidate>& best) {
  const size_t count = std::min(row.size(), static_cast<size_t>(k));
  ids.clear();
  ops.collect(row.data(), row.size(), safe_threshold(ops, row, count), kInfinity, ids);
  gather(row, ids, best);
  DI_CHECK(best.size() >= count, "the row holds NaN");
  const auto end = best.begin() + static_cast<std::ptrdiff_t>(count);
  if (end != best.end()) std::nth_element(best.begin(), end, best.end(), comes_before);
  best.resize(count);
}

// Halves the range in which the border lies: linear time, and exact because weights are integers.
Candidate find_border(std::span<Candidate> candidates, float max, float scale, uint64_t before,
                      uint64_t target) {
  DI_CHECK(before < target && !candidates.empty());
  while (candidates.size() > 1) {
    const auto middle = static_cast<std::ptrdiff_t>(candidates.size() / 2);
    std::nth_element(candidates.begin(), candidates.begin() + middle, candidates.end(), comes_before);
    const std::span<Candidate> front = candidates.first(static_cast<size_t>(middle));
    const uint64_t half = weigh(front, max, scale);
    if (before + half >= target) {
      candidates = front;
    } else {
      before += half;
      candidates = candidates.subspan(static_cast<size_t>(middle));
    }
  }
  DI_CHECK(before + weigh(candidates, max, scale) >= target, "the candidates weigh too little");
  return candidates.front();
}

// Narrows many candidates to those of one bin by logit, in one pass over them. Moves `before` along.
static std::span<Candidate> narrow(std::span<Candidate> candidates, float max, float scale, uint64_t& before,
                                   uint64_t target) {
  constexpr size_t kBins = 256;
  const auto [low, high] = std::ranges::minmax(candidates, {}, &Candidate::logit);
  const float bins_per_logit = static_cast<float>(kBins) / (high.logit - low.logit);
  if (!(bins_per_logit < kInfinity) || bins_per_logit <= 0) return candidates;
  const float top = high.logit;
  const auto bin_of = [&](const Candidate& c) {  // monotonous, so bins are parts of the order
    return std::min(static_cast<size_t>((top - c.logit) * bins_per_logit), kBins - 1);
  };
  std::array<uint64_t, kBins> sums{};
  for (const Candidate& c : candidates) sums[bin_of(c)] += weight_of((c.logit - max) * scale);
  size_t bin = 0;
  while (before + sums[bin] < target && bin + 1 < kBins) before += sums[bin++];
  const auto rest = std::ranges::partition(candidates, [&](const Candidate& c) { return bin_of(c) == bin; });
  return {candidates.begin(), rest.begin()};
}

static uint64_t top_p_target(float top_p, uint64_t total) {
  return static_cast<uint64_t>(std::ceil(static_cast<double>(top_p) * static_cast<double>(total)));
}

namespace {

// Tokens among which the border lies: logits in [low, high), with `before` weight above them.
struct Bracket {
  float low, high;
  uint64_t before, target;
};

Bracket bracket_border(const RowOps& ops, std::span<const float> row, float max, float scale, float top_p) {
  // Of a trained model nearly all weight lies within a factor e^-8 of the best token, in a few hundred
  // others.
  const std::array<float, 2> near = {max - 8.0f / scale, -kInfinity};
  std::array<uint64_t, 2> two;
  ops.sum_two_weights(row.data(), row.size(), max, scale, near.data(), two.data());
  const uint64_t target = top_p_target(top_p, two[1]);
  if (two[0] >= target) return {near[0], kInfinity, 0, target};
  // Flat rows: weigh the tokens above several depths in one more pass.
  constexpr std::array<float, RowOps::kNumSteps> kDepths = {8, 9, 10, 11, 12, 14, 17, kInfinity};
  std::array<float, RowOps::kNumSteps> thresholds;
  for (size_t j = 0; j < thresholds.size(); ++j) thresholds[j] = max - kDepths[j] / scale;
  std::array<uint64_t, RowOps::kNumSteps> sums;
  ops.sum_weights(row.data(), row.size(), max, scale, thresholds.data(), sums.data());
  size_t j = 1;
  while (sums[j] < target) ++j;
  return {thresholds[j], thresholds[j - 1], sums[j - 1], target};
}

}  // namespace

TopP select_top_p(const RowOps& ops, std::span<const float> row, float max, float scale, float top_p,
                  std::vector<int32_t>& ids, std::vector<Candidate>& candidates) {
  auto [low, high, before, target] = bracket_border(ops, row, max, scale, top_p);
  const bool has_all = high == kInfinity;
  ids.clear();
  ops.collect(row.data(), row.size(), low, high, ids);
  gather(row, ids, candidates);
  std::span<Candidate> near = candidates;
  if (near.size() > kFewCandidates) near = narrow(near, max, scale, before, target);
  const Candidate last = find_border(near, max, scale, before, target);
  return {{last.logit, last.id}, has_all};
}

void cut_top_p(std::vector<Candidate>& candidates, float max, float scale, float top_p) {
  const uint64_t target = top_p_target(top_p, weigh(candidates, max, scale));
  const Candidate last = find_border(candidates, max, scale, 0, target);
  const Border border{last.logit, last.id};
  std::erase_if(candidates, [&](const Candidate& c) { return !border.includes(c.logit, c.id); });
}

}  // namespace deepinfer
