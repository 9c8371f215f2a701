#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "deepinfer/sampling.h"
#include "sampler/fixed_math.h"
#include "sampler/reference_sampler.h"
#include "sampler/row_ops.h"
#include "testing.h"

using namespace deepinfer;
using deepinfer::testing::reference_sample;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(std::mt19937& rng, size_t size, float sigma, bool with_ties) {
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> row(size);
  for (float& x : row) x = with_ties ? std::round(normal(rng) * 2) / 2 : normal(rng);
  return row;
}

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

}  // namespace

TEST(fixed_math_is_accurate) {
  for (float x = 0; x > -87; x -= 0.0137f) {
    const double exact = std::exp(static_cast<double>(x));
    CHECK(std::abs(fixed_exp(x) - exact) <= 3e-7 * exact);
  }
  CHECK_EQ(fixed_exp(0.0f), 1.0f);
  CHECK_EQ(fixed_exp(-kInfinity), 0.0f);
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    const double exact = std::log(x);
    CHECK(std::abs(fixed_log(x) - exact) <= 1e-15 * std::max(1.0, std::abs(exact)));
  }
  for (const uint64_t bits : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, uint64_t{1} << 56,
                              uint64_t{1} << 63, ~uint64_t{0} << 12}) {
    // v is rounded to double as in the noise itself; only the logarithms are wider.
    const long double v = (static_cast<double>(bits) + 0.5) * 0x1p-64;
    const auto exact = static_cast<double>(-std::log(-std::log1p(-v)));
    CHECK(std::abs(fixed_gumbel(bits) - exact) < 1e-12 * (1 + std::abs(exact)));
  }
  CHECK(fixed_gumbel(~uint64_t{0}) < -3.5);
}

TEST(the_noise_bound_holds) {
  std::mt19937_64 rng(1);
  int num_wrong = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    const uint64_t bits = rng() >> (i % 40);
    const double exact = fixed_gumbel(bits),
                 bound = static_cast<double>(gumbel_bound(static_cast<uint32_t>(bits >> 32)));
    num_wrong += !(bound > exact);
  }
  CHECK_EQ(num_wrong, 0);
}

TEST(every_width_gives_the_same_bits) {
  std::mt19937 rng(2);
  const std::vector<const RowOps*> all = all_row_ops();
  for (const size_t size : {1u, 15u, 16u, 63u, 64u, 65u, 1000u, 1024u, 4099u, 49152u}) {
    std::vector<float> row = random_row(rng, size, 3, size % 2 == 0);
    if (size > 20) row[7] = -kInfinity;
    const RowMax top = all[0]->find_max(row.data(), size);
    CHECK_EQ(top.max, *std::ranges::max_element(row));
    CHECK_EQ(top.index, std::ranges::max_element(row) - row.begin());
    const double sum = all[0]->sum_exp(row.data(), size, top.max);
    double exact = 0;
    const std::array<float, RowOps::kNumSteps> thresholds = {3, 2, 1.5f, 1, 0, -1, -2, -kInfinity};
    std::array<uint64_t, RowOps::kNumSteps> weights{};
    for (const float x : row) {
      exact += std::exp(static_cast<double>(x) - top.max);
      for (size_t j = 0; j < weights.size(); ++j)
        if (x >= thresholds[j]) weights[j] += weight_of((x - top.max) * 0.7f);
    }
    CHECK(std::abs(sum - exact) < 1e-6 * exact);
    std::vector<uint32_t> mask((size + 31) / 32);
    for (uint32_t& word : mask) word = rng();
    std::vector<float> masked = row;
    for (size_t i = 0; i < size; ++i)
      if (!(mask[i / 32] >> (i % 32) & 1)) masked[i] = -kInfinity;
    for (const RowOps* ops : all) {
      CHECK_EQ(ops->find_max(row.data(), size).index, top.index);
      CHECK_EQ(ops->sum_exp(row.data(), size, top.max), sum);
      std::array<uint64_t, RowOps::kNumSteps> sums;
      ops->sum_weights(row.data(), size, top.max, 0.7f, thresholds.data(), sums.data());
      CHECK(sums == weights);
      std::array<uint64_t, 2> two;
      ops->sum_two_weights(row.data(), size, top.max, 0.7f, thresholds.data() + 2, two.data());
      CHECK(two[0] == weights[2] && two[1] == weights[3]);
      std::vector<int32_t> ids;
      ops->collect(row.data(), size, 1.5f, 3.0f, ids);
      CHECK_EQ(std::ssize(ids), std::ranges::count_if(row, [](float x) { return x >= 1.5f && x < 3.0f; }));
      const auto middle = static_cast<int32_t>(size / 2);
      int32_t better = 0;
      for (size_t i = 0; i < size; ++i)
        better += row[i] > row[size / 2] || (row[i] == row[size / 2] && i < size / 2);
      CHECK_EQ(ops->count_better(row.data(), size, row[size / 2], middle), better);
      std::vector<float> copy(size);
      RowMax raw, masked_top = ops->mask_row(row.data(), copy.data(), size, mask.data(), raw);
      CHECK(copy == masked);
      CHECK_EQ(bits_of(raw.max), bits_of(top.max));
      const RowMax again = ops->find_max(masked.data(), size);
      CHECK_EQ(bits_of(masked_top.max), bits_of(again.max));
      CHECK_EQ(masked_top.index, again.index);
      copy = row;
      masked_top = ops->mask_row(copy.data(), copy.data(), size, mask.data(), raw);  // in place
      CHECK(copy == masked && masked_top.index == again.index);
      std::vector<float> maxima(256), maxima_base(256);
      ops->strided_maxima(row.data(), size, maxima.data(), 256);
      all[0]->strided_maxima(row.data(), size, maxima_base.data(), 256);
      CHECK(maxima == maxima_base);
      for (uint64_t seed = 0; seed < 20; ++seed) {
        const TokenNoise noise({seed, 0, 5});
        CHECK_EQ(ops->gumbel_argmax(row.data(), size, top.max, 0.7f, {-1e30f, 0}, noise, top.index),
                 all[0]->gumbel_argmax(row.data(), size, top.max, 0.7f, {-1e30f, 0}, noise, top.index));
      }
    }
  }
}

TEST(rows_that_are_not_finite_are_found) {
  for (const RowOps* ops : all_row_ops())
    for (const size_t size : {5u, 16u, 100u, 4096u})
      for (size_t at = 0; at < size; at += 1 + size / 7) {
        std::vector<float> row(size, 1.0f);
        CHECK(ops->find_max(row.data(), size).is_finite);
        row[at] = -kInfinity;
        CHECK(ops->find_max(row.data(), size).is_finite);
        for (const float bad : {std::nanf(""), kInfinity}) {
          row[at] = bad;
          CHECK(!ops->find_max(row.data(), size).is_finite);
          std::vector<uint32_t> mask((size + 31) / 32, 0xFFFFFFFFu);  // of all but the bad one
          mask[at / 32] &= ~(1u << (at % 32));
          std::vector<float> masked(size);
          RowMax raw;
          CHECK(ops->mask_row(row.data(), masked.data(), size, mask.data(), raw).is_finite);
          CHECK(!raw.is_finite);
        }
      }
  const std::vector<float> nothing(40, -kInfinity);
  CHECK(!why_not_finite(nothing).empty());
}

TEST(equals_the_reference_for_random_parameters) {
  std::mt19937 rng(3);
  SamplerScratch scratch;
  const auto chance = [&](int one_in) { return rng() % static_cast<uint32_t>(one_in) == 0; };
  for (int round = 0; round < 4000; ++round) {
    const size_t size = round % 50 == 0 ? 30000 : 1 + rng() % 700;
    const std::vector<float> row = random_row(rng, size, chance(2) ? 1.0f : 6.0f, chance(3));
    const auto any_token = [&] { return static_cast<int32_t>(rng() % size); };
    SamplingParams p;
    p.temperature = std::array{0.0f, 0.3f, 1.0f, 5.0f}[rng() % 4];
    if (chance(2)) p.top_k = std::array{1, 2, 5, 50, 100, 400, 2000}[rng() % 7];
    if (chance(2)) p.top_p = std::array{0.01f, 0.5f, 0.9f, 0.999f}[rng() % 4];
    if (chance(3)) p.min_p = std::array{0.01f, 0.2f, 1.0f}[rng() % 3];
    if (chance(3)) p.repetition_penalty = 1.3f;
    if (chance(3)) p.presence_penalty = 0.7f;
    if (chance(3)) p.frequency_penalty = -0.4f;
    if (chance(3)) p.logit_bias = {{any_token(), 3.0f}, {any_token(), -8.0f}};
    TokenCounts counts;
    for (int i = 0; i < 5; ++i) counts[any_token()] = {chance(2), static_cast<int32_t>(rng() % 3)};
    std::vector<int32_t> held;
    if (chance(3) && size > 3) held = {any_token()};  // leaves 1 or 2 of a mask
    std::vector<uint32_t> mask;
    if (chance(3) && size > 60) {
      mask.resize((size + 31) / 32);
      for (uint32_t& word : mask) word = chance(2) ? rng() | 1 : 0xFFFFFFFFu;
      if (chance(2))  // a few tokens
        for (uint32_t& word : mask) word &= chance(3) ? rng() & rng() : 0;
      mask[0] |= 6;
    }
    const SampleInput input{row,
                            &p,
                            {rng(), static_cast<int32_t>(rng() % 4), static_cast<int32_t>(rng() % 1000)},
                            chance(2) ? &counts : nullptr,
                            held,
                            mask};
    const SampleOutput output = sample_row(input, scratch);
    CHECK_EQ(output.error, "");
    CHECK_EQ(output.token, reference_sample(input));
  }
}

TEST(scores_are_of_the_raw_distribution) {
  std::mt19937 rng(4);
  SamplerScratch scratch;
  for (const size_t size : {3u, 100u, 5000u}) {
    const std::vector<float> row = random_row(rng, size, 2, true);
    SamplingParams p;
    p.temperature = 0.1f;
    p.top_logprobs = 7;
    p.logit_bias = {{1, 100.0f}};
    const SampleOutput output = sample_row({row, &p, {}, nullptr, {}, {}}, scratch);
    CHECK_EQ(output.token, 1);
    double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<double>(x));
    CHECK(std::abs(output.logprobs.logprob - (row[1] - std::log(sum))) < 1e-5);
    std::vector<int32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
      return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
    });
    CHECK_EQ(output.logprobs.top.size(), std::min<size_t>(7, size));
    for (size_t i = 0; i < output.logprobs.top.size(); ++i) CHECK_EQ(output.logprobs.top[i].first, order[i]);
    CHECK_EQ(order[static_cast<size_t>(output.logprobs.rank - 1)], 1);
    const TokenLogprobs same = score_token(row, output.logprobs.top[0].first, 0);
    CHECK_EQ(bits_of(same.logprob), bits_of(output.logprobs.top[0].second));
  }
}

TEST(impossible_rows_are_errors) {
  SamplerScratch scratch;
  SamplingParams p;
  const std::vector<float> row = {1, 2};
  const std::vector<uint32_t> none = {0};
  CHECK(sample_row({row, &p, {}, nullptr, {}, none}, scratch).error.find("no token is allowed") !=
        std::string::npos);
  const std::vector<float> nan = {1, std::nanf("")};
  CHECK(sample_row({nan, &p, {}, nullptr, {}, {}}, scratch).error.find("not finite") != std::string::npos);
}

TEST(wrong_parameters_are_named) {
  const auto why = [](auto change) {
    SamplingParams p;
    p.max_tokens = 10;
    change(p);
    return why_invalid(p, 100);
  };
  const auto names = [](const std::string& text, const char* word) {
    return text.find(word) != std::string::npos;
  };
  CHECK_EQ(why([](SamplingParams&) {}), "");
  CHECK(names(why([](SamplingParams& p) { p.temperature = std::nanf(""); }), "temperature"));
  CHECK(names(why([](SamplingParams& p) { p.temperature = -1; }), "temperature"));
  CHECK(names(why([](SamplingParams& p) { p.top_k = -1; }), "top_k"));
  CHECK(names(why([](SamplingParams& p) { p.top_p = 1.5f; }), "top_p"));
  CHECK(names(why([](SamplingParams& p) { p.min_p = -0.1f; }), "min_p"));
  CHECK(names(why([](SamplingParams& p) { p.repetition_penalty = 0; }), "repetition_penalty"));
  CHECK(names(why([](SamplingParams& p) { p.presence_penalty = 3; }), "presence_penalty"));
  CHECK(names(why([](SamplingParams& p) { p.frequency_penalty = std::nanf(""); }), "frequency_penalty"));
  CHECK(names(why([](SamplingParams& p) { p.min_tokens = 11; }), "min_tokens"));
  CHECK(names(why([](SamplingParams& p) { p.logit_bias = {{100, 1.0f}}; }), "logit_bias"));
  CHECK(names(why([](SamplingParams& p) { p.stop = {""}; }), "stop string"));
  CHECK(names(why([](SamplingParams& p) { p.stop_token_ids = {-1}; }), "stop token"));
}

TEST_MAIN()
