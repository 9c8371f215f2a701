#include "kernels/formats/formats.h"

#include <cmath>
#include <random>
#include <vector>

#include "deepinfer/status.h"
#include "testing.h"

using namespace deepinfer;

namespace {

std::vector<float> gaussian(int count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(rng);
  return values;
}

double relative_error(const std::vector<float>& want, const std::vector<float>& have) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(want[i]) - have[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(error / norm);
}

struct Case {
  DType dtype;
  double bound;  // on the relative error of Gaussian values; a little above what was measured
};
constexpr Case kCases[] = {
    {DType::kF32, 0},      {DType::kF16, 3e-4},   {DType::kBF16, 2.5e-3}, {DType::kQ4_0, 0.1},
    {DType::kQ4_1, 0.085}, {DType::kQ5_0, 0.05},  {DType::kQ5_1, 0.042},  {DType::kQ8_0, 0.006},
    {DType::kQ4_K, 0.09},  {DType::kQ5_K, 0.045}, {DType::kQ6_K, 0.025},
};

}  // namespace

TEST(round_trip_error_is_the_formats_own) {
  const std::vector<float> values = gaussian(256 * 40, 7);
  for (const Case& c : kCases) {
    const DTypeInfo& info = dtype_info(c.dtype);
    std::vector<std::byte> blocks(values.size() / static_cast<size_t>(info.block_elems) *
                                  static_cast<size_t>(info.block_bytes));
    std::vector<float> decoded(values.size()), again(values.size());
    formats::quantise(c.dtype, values.data(), static_cast<int64_t>(values.size()), blocks.data());
    formats::dequantise(c.dtype, blocks.data(), static_cast<int64_t>(values.size()), decoded.data());
    const double error = relative_error(values, decoded);
    if (!(error <= c.bound)) std::cerr << info.name << " error " << error << "\n";
    CHECK(error <= c.bound);
    CHECK(c.bound == 0 || error > c.bound / 4);
  }
}

TEST(q4_1_block_by_hand) {
  // d = 0.5, m = -1; codes 0..15 in the low halves, 15..0 in the high halves.
  std::byte block[20] = {std::byte{0x00}, std::byte{0x38}, std::byte{0x00}, std::byte{0xbc}};
  for (int j = 0; j < 16; ++j) block[4 + j] = static_cast<std::byte>(j | ((15 - j) << 4));
  float values[32];
  formats::dequantise(DType::kQ4_1, block, 32, values);
  for (int j = 0; j < 16; ++j) {
    CHECK_EQ(values[j], 0.5f * static_cast<float>(j) - 1.0f);
    CHECK_EQ(values[16 + j], 0.5f * static_cast<float>(15 - j) - 1.0f);
  }
}

TEST(refuses_types_without_weights) {
  float value;
  std::byte bytes[8] = {};
  CHECK(!formats::is_weight_type(DType::kI32));
  CHECK_THROWS(Error, formats::dequantise(DType::kI32, bytes, 1, &value));
  CHECK(formats::is_block_quantised(DType::kQ6_K) && !formats::is_block_quantised(DType::kBF16));
}

TEST_MAIN()
