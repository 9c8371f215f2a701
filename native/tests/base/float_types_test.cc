#include "base/float_types.h"

#include <cmath>
#include <cstdlib>

#include "testing.h"

using namespace deepinfer;

namespace {

// The half nearest to `value`, by search over all finite halves; ties to the even code.
uint16_t nearest_half(float value) {
  uint16_t best = 0;
  double best_distance = 1e300;
  for (uint32_t code = 0; code < 0x7c00; ++code) {
    const double distance =
        std::fabs(std::fabs(static_cast<double>(value)) - f16_to_float(static_cast<uint16_t>(code)));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best_distance = distance;
      best = static_cast<uint16_t>(code);
    }
  }
  return static_cast<uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

}  // namespace

TEST(half_codes_survive_the_round_trip) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<uint16_t>(code);
    if ((code & 0x7c00) == 0x7c00) continue;  // infinities and NaN do not
    CHECK_EQ(float_to_f16_saturating(f16_to_float(half)), half);
  }
}

TEST(half_values_are_the_standard_ones) {
  CHECK_EQ(f16_to_float(0x3c00), 1.0f);
  CHECK_EQ(f16_to_float(0xc000), -2.0f);
  CHECK_EQ(f16_to_float(0x7bff), 65504.0f);
  CHECK_EQ(f16_to_float(0x0001), 0x1p-24f);
  CHECK_EQ(f16_to_float(0x0400), 0x1p-14f);
  CHECK(std::isinf(f16_to_float(0x7c00)) && std::isnan(f16_to_float(0x7e00)));
}

TEST(half_rounds_to_nearest_even_and_saturates) {
  const float values[] = {0.1f,     -0.1f,         1.00048828125f, 1.00146484375f, 65503.9f,
                          3e-8f,    2.9802322e-8f, -4.47e-8f,      6.1035e-5f,     6.0976e-5f,
                          123.456f, -0.0f,         1e-12f};
  for (float value : values) CHECK_EQ(float_to_f16_saturating(value), nearest_half(value));
  CHECK_EQ(float_to_f16_saturating(65520.0f), 0x7bff);
  CHECK_EQ(float_to_f16_saturating(-1e30f), 0xfbff);
  CHECK_EQ(float_to_f16_saturating(INFINITY), 0x7bff);
  CHECK(std::isnan(f16_to_float(float_to_f16_saturating(NAN))));
}

TEST(bf16_rounds_to_nearest_even_and_flushes_denormals) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    const float value = bf16_to_float(bits);
    if (std::isnan(value)) {
      CHECK(std::isnan(bf16_to_float(float_to_bf16(value))));
    } else {
      const bool denormal = (code & 0x7f80) == 0;
      CHECK_EQ(float_to_bf16(value), denormal ? static_cast<uint16_t>(code & 0x8000) : bits);
    }
  }
  CHECK_EQ(float_to_bf16(bits_to_float(0x3f808000)), 0x3f80);  // a tie goes to the even code
  CHECK_EQ(float_to_bf16(bits_to_float(0x3f818000)), 0x3f82);
  CHECK_EQ(float_to_bf16(bits_to_float(0x3f808001)), 0x3f81);
  CHECK_EQ(float_to_bf16(3.4e38f), 0x7f80);
}

TEST_MAIN()
