#include "deepinfer/divergence.h"

#include <cmath>
#include <limits>
#include <vector>

#include "testing.h"

namespace deepinfer {
namespace {

TEST(EqualRowsHaveNoDivergence) {
  const std::vector<float> row = {0.5f, -1.0f, 3.0f, 2.5f};
  const LogitDivergence d = logit_divergence(row.data(), row.data(), 4);
  CHECK_EQ(d.kl, 0.0);
  CHECK_EQ(d.base_token, 2);
  CHECK_EQ(d.other_token, 2);
}

TEST(AShiftOfAllLogitsChangesNothing) {
  const std::vector<float> base = {1.0f, 2.0f, 3.0f};
  const std::vector<float> shifted = {101.0f, 102.0f, 103.0f};
  CHECK(logit_divergence(base.data(), shifted.data(), 3).kl < 1e-12);
}

TEST(TwoTokensEqualTheClosedForm) {
  // p = (3/4, 1/4), q = (1/2, 1/2): KL = 3/4 log(3/2) + 1/4 log(1/2).
  const std::vector<float> p = {std::log(3.0f), 0.0f};
  const std::vector<float> q = {0.0f, 0.0f};
  const double want = 0.75 * std::log(1.5) + 0.25 * std::log(0.5);
  const LogitDivergence d = logit_divergence(p.data(), q.data(), 2);
  CHECK(std::abs(d.kl - want) < 1e-7);
  CHECK_EQ(d.other_token, 0);  // a tie goes to the lower id
}

TEST(LargeLogitsDoNotOverflow) {
  const std::vector<float> p = {3e38f, -3e38f};
  const std::vector<float> q = {3e38f, 0.0f};
  CHECK_EQ(logit_divergence(p.data(), q.data(), 2).kl, 0.0);
}

TEST(WhatIsNotFiniteIsNotANumber) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> good = {1.0f, 2.0f};
  for (const float bad : {inf, -inf, std::nanf("")}) {
    const std::vector<float> row = {1.0f, bad};
    CHECK(std::isnan(logit_divergence(row.data(), good.data(), 2).kl));
    CHECK(std::isnan(logit_divergence(good.data(), row.data(), 2).kl));
    CHECK_EQ(logit_divergence(good.data(), row.data(), 2).other_token, -1);
  }
}

}  // namespace
}  // namespace deepinfer

TEST_MAIN()
