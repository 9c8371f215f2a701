// The sampler's frequencies against exact probabilities, and the independence of its draws. Keys are fixed,
// so nothing here is random; the limits are those of a chance of one in ten thousand.
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "deepinfer/sampling.h"
#include "sampler/reference_sampler.h"
#include "support/sanitized.h"
#include "testing.h"

using namespace deepinfer;

namespace {

// Value that a chi-square with `freedom` degrees exceeds with probability 1e-4 (Wilson and Hilferty).
double chi_square_limit(double freedom) {
  const double h = 2.0 / (9.0 * freedom), z = 3.719;
  return freedom * std::pow(1 - h + z * std::sqrt(h), 3);
}

std::vector<float> row_of(size_t size, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 1.5f);
  std::vector<float> row(size);
  for (float& x : row) x = normal(rng);
  return row;
}

std::vector<double> exact_probabilities(const std::vector<float>& row, const SamplingParams& params) {
  std::vector<double> p(row.size(), 0.0);
  double sum = 0;
  for (const int32_t id : testing::reference_kept(row, params)) {
    p[static_cast<size_t>(id)] =
        std::exp(static_cast<double>(row[static_cast<size_t>(id)]) / params.temperature);
    sum += p[static_cast<size_t>(id)];
  }
  for (double& x : p) x /= sum;
  return p;
}

int32_t draw(const std::vector<float>& row, const SamplingParams& params, const NoiseKey& key) {
  static SamplerScratch scratch;
  return sample_row({row, &params, key, nullptr, {}, {}}, scratch).token;
}

// Tokens with an expectation below 10 are counted together.
void check_frequencies(const std::vector<float>& row, const SamplingParams& params, int num_draws,
                       uint64_t seed) {
  if (testing::kIsSanitized) num_draws /= 5;
  const std::vector<double> p = exact_probabilities(row, params);
  std::vector<int> seen(row.size(), 0);
  for (int i = 0; i < num_draws; ++i) ++seen[static_cast<size_t>(draw(row, params, {seed, 0, i}))];
  double statistic = 0, rare_seen = 0, rare_expected = 0;
  int cells = 0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t v = 0; v < row.size(); ++v) {
    const double expected = p[v] * num_draws;
    if (p[v] == 0) CHECK_EQ(seen[v], 0);
    if (expected >= 10) {
      add(seen[v], expected);
    } else {
      rare_seen += seen[v];
      rare_expected += expected;
    }
  }
  if (rare_expected >= 10) add(rare_seen, rare_expected);
  CHECK(cells >= 2);
  CHECK(statistic < chi_square_limit(cells - 1));
}

// Pairs of draws, `second` with a key next to that of `first`: their table must be the product of its
// borders.
void check_independence(const std::function<NoiseKey(int)>& first,
                        const std::function<NoiseKey(int)>& second) {
  const std::vector<float> row = row_of(8, 5);
  const SamplingParams params;
  constexpr int kDraws = testing::kIsSanitized ? 12000 : 60000;
  const std::vector<double> p = exact_probabilities(row, params);
  std::vector<int> seen(64, 0);
  for (int i = 0; i < kDraws; ++i)
    ++seen[static_cast<size_t>(draw(row, params, first(i)) * 8 + draw(row, params, second(i)))];
  double statistic = 0;
  for (size_t a = 0; a < 8; ++a)
    for (size_t b = 0; b < 8; ++b) {
      const double expected = p[a] * p[b] * kDraws;
      statistic += (seen[a * 8 + b] - expected) * (seen[a * 8 + b] - expected) / expected;
    }
  CHECK(statistic < chi_square_limit(63));
}

}  // namespace

TEST(frequencies_of_a_small_vocabulary) {
  const std::vector<float> row = row_of(12, 1);
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    SamplingParams p;
    p.temperature = temperature;
    check_frequencies(row, p, 50000, 11);
    p.top_k = 5;
    check_frequencies(row, p, 50000, 12);
    p.top_k = 0;
    p.top_p = 0.8f;
    check_frequencies(row, p, 50000, 13);
    p.top_p = 1.0f;
    p.min_p = 0.1f;
    check_frequencies(row, p, 50000, 14);
    p.top_k = 9;
    p.top_p = 0.95f;
    check_frequencies(row, p, 50000, 15);
  }
}

TEST(frequencies_of_a_large_vocabulary) {
  const std::vector<float> row = row_of(3000, 2);
  SamplingParams p;
  check_frequencies(row, p, 60000, 21);
  p.top_k = 300;
  check_frequencies(row, p, 60000, 22);
  p.top_k = 0;
  p.top_p = 0.7f;
  check_frequencies(row, p, 60000, 23);
  p.top_p = 1.0f;
  p.min_p = 0.02f;
  check_frequencies(row, p, 60000, 24);
}

TEST(flat_rows_reach_every_token) {
  const std::vector<float> row(1000, 0.0f);
  check_frequencies(row, SamplingParams(), 60000, 31);
}

TEST(neighbouring_positions_samples_and_seeds_are_independent) {
  check_independence([](int i) { return NoiseKey{7, 0, i}; }, [](int i) { return NoiseKey{7, 0, i + 1}; });
  check_independence([](int i) { return NoiseKey{7, 0, i}; }, [](int i) { return NoiseKey{7, 1, i}; });
  check_independence([](int i) { return NoiseKey{7, i, 3}; }, [](int i) { return NoiseKey{7, i + 1, 3}; });
  check_independence([](int i) { return NoiseKey{static_cast<uint64_t>(i), 0, 3}; },
                     [](int i) { return NoiseKey{static_cast<uint64_t>(i) + 1, 0, 3}; });
  check_independence([](int i) { return NoiseKey{7, 0, i}; }, [](int i) { return NoiseKey{7, i, 0}; });
}

TEST_MAIN()
