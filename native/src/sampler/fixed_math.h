// exp and log with one definition: plain multiplications and additions in a written order, so that the bits
// depend on neither the C library nor the processor.
#pragma once

#include <bit>
#include <cstdint>

namespace deepinfer {

// exp(x) for x <= 0, relative error below 3e-7; 0 below kExpMin. The vector forms in row_ops.cc use the same
// constants in the same order.
struct ExpConstants {
  static constexpr float kExpMin = -87.0f;
  static constexpr float kLog2e = 1.44269504f;
  static constexpr float kRound = 12582912.0f;     // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float kLn2High = 0.693359375f;  // few bits, so that n * kLn2High is exact
  static constexpr float kLn2Low = -2.12194440e-4f;
  static constexpr float kC2 = 0.5f, kC3 = 0.166666657f, kC4 = 0.0416664779f, kC5 = 0.00833345670f,
                         kC6 = 0.00139304355f;
};

inline float fixed_exp(float x) {
  using C = ExpConstants;
  if (!(x >= C::kExpMin)) return 0.0f;
  const float shifted = x * C::kLog2e + C::kRound;
  const float n = shifted - C::kRound;
  const float r = (x - n * C::kLn2High) - n * C::kLn2Low;
  float p = C::kC6;
  p = p * r + C::kC5;
  p = p * r + C::kC4;
  p = p * r + C::kC3;
  p = p * r + C::kC2;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t exponent = (std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(C::kRound)) * (1 << 23);
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + exponent);
}

// log(x) for normal positive x; relative error below 1e-15 away from 1.
inline double fixed_log(double x) {
  int64_t bits = std::bit_cast<int64_t>(x);
  int64_t exponent = (bits >> 52) - 1023;
  bits = (bits & 0xFFFFFFFFFFFFFll) | 0x3FF0000000000000ll;
  double m = std::bit_cast<double>(bits);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // log(m) = 2 atanh(t), t = (m - 1) / (m + 1), |t| < 0.1716
  const double t = (m - 1.0) / (m + 1.0), t2 = t * t;
  double p = 1.0 / 23;
  for (int k = 21; k >= 1; k -= 2) p = p * t2 + 1.0 / k;
  return 2.0 * t * p + static_cast<double>(exponent) * 0.6931471805599453;
}

// The Gumbel noise of 64 uniform bits: -log(-log(u)) with u = 1 - (bits + 1/2) / 2^64.
inline double fixed_gumbel(uint64_t bits) {
  const double v = (static_cast<double>(bits) + 0.5) * 0x1p-64;
  // -log(1 - v); the series where 1 - v would lose v's digits.
  const double e =
      v < 0x1p-8
          ? v * (1 + v * (1.0 / 2 + v * (1.0 / 3 + v * (1.0 / 4 + v * (1.0 / 5 + v * (1.0 / 6 + v / 7))))))
          : -fixed_log(v < 1.0 ? 1.0 - v : 0x1p-54);
  return -fixed_log(e);
}

}  // namespace deepinfer
