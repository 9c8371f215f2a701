// int8 activations with residuals: how close they are, and that a row's bits do not depend on the rows beside
// it, whose residuals decide what else is computed for its tile.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "deepinfer/status.h"
#include "kernels/dispatch.h"
#include "kernels/formats/formats.h"
#include "kernels/linear.h"
#include "testing.h"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

constexpr int kInputs = 512, kOutputs = 56;  // the last panel is half full
constexpr int kMaxRows = 70;

struct Weights {
  PageArena arena;
  Linear linear;
  std::vector<float> values;  // [kOutputs, kInputs] as stored
};

void make_weights(DType dtype, ThreadPool& pool, Weights& weights,
                  Precision precision = Precision::kPrecise) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const DTypeInfo& info = dtype_info(dtype);
  weights.values.resize(size_t{kInputs} * kOutputs);
  for (float& value : weights.values) value = normal(random);
  std::vector<std::byte> bytes(weights.values.size() / static_cast<size_t>(info.block_elems) *
                               static_cast<size_t>(info.block_bytes));
  formats::quantise(dtype, weights.values.data(), std::ssize(weights.values), bytes.data());
  formats::dequantise(dtype, bytes.data(), std::ssize(weights.values), weights.values.data());
  TensorInfo tensor;
  tensor.name = "w";
  tensor.dtype = dtype;
  tensor.shape = {kOutputs, kInputs};
  tensor.data = bytes.data();
  tensor.num_bytes = bytes.size();
  weights.linear.append(pack_matrix(tensor, {}, precision, pool, weights.arena));
}

// Rows with spikes in some blocks: one has none, one has them everywhere.
std::vector<std::vector<float>> make_rows() {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> rows(kMaxRows, std::vector<float>(kInputs));
  for (int r = 0; r < kMaxRows; ++r) {
    for (float& value : rows[static_cast<size_t>(r)]) value = normal(random) * std::exp2(float(r % 9) - 4.0f);
    for (int b = 0; b < kInputs / kBlock; ++b) {
      if (r % 5 != 0 && random() % 4 < static_cast<unsigned>(r % 5))
        rows[static_cast<size_t>(r)][static_cast<size_t>(b * kBlock) + random() % kBlock] *= 12.0f;
    }
  }
  rows[3].assign(kInputs, 0.0f);
  rows[4].assign(kInputs, 1e-30f);
  return rows;
}

// The products of rows first, first + 1, ... (around the end), [num_rows][kOutputs].
std::vector<float> multiply(const std::string& level, ThreadPool& pool, const Linear& linear,
                            const std::vector<std::vector<float>>& rows, int first, int num_rows) {
  const KernelTable& table = table_for(level);
  Activations activations(table, num_rows, kInputs);
  activations.begin(num_rows, linear);
  for (int i = 0; i < num_rows; ++i)
    activations.set_row(i, rows[static_cast<size_t>((first + i) % kMaxRows)].data());
  std::vector<float> y(static_cast<size_t>(num_rows) * kOutputs);
  Multiplier(table, pool, kInputs).run(linear, activations, {y.data(), kOutputs, false});
  return y;
}

// Root mean square of the error over that of the products.
double relative_error(const Weights& weights, const std::vector<std::vector<float>>& rows,
                      const std::vector<float>& y) {
  double wrong = 0, all = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t row = i / kOutputs, column = i % kOutputs;
    double want = 0;
    for (size_t k = 0; k < kInputs; ++k)
      want += double{rows[row][k]} * double{weights.values[column * kInputs + k]};
    wrong += (y[i] - want) * (y[i] - want);
    all += want * want;
  }
  return std::sqrt(wrong / all);
}

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                            DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

}  // namespace

TEST(a_row_has_the_same_bits_beside_any_others) {
  ThreadPool pool(1);
  const auto rows = make_rows();
  for (const DType dtype : kTypes) {
    Weights weights;
    make_weights(dtype, pool, weights);
    std::vector<float> alone;
    for (int r = 0; r < kMaxRows; ++r) {
      const auto y = multiply("scalar", pool, weights.linear, rows, r, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (const std::string& level : available_levels()) {
      if (level == "scalar" && dtype != DType::kQ4_1 && dtype != DType::kQ6_K) continue;  // it is slow
      for (int num_rows = 1; num_rows <= kMaxRows; ++num_rows) {
        const int first = (11 * num_rows) % kMaxRows;  // other neighbours for each number of rows
        const auto y = multiply(level, pool, weights.linear, rows, first, num_rows);
        bool same = true;
        for (int i = 0; i < num_rows; ++i) {
          same =
              same && std::memcmp(y.data() + i * kOutputs, alone.data() + (first + i) % kMaxRows * kOutputs,
                                  kOutputs * sizeof(float)) == 0;
        }
        if (!same) std::cerr << level << " " << dtype_info(dtype).name << " m=" << num_rows << "\n";
        CHECK(same);
      }
    }
  }
}

TEST(a_row_has_the_same_bits_beside_any_others_without_residuals) {
  ThreadPool pool(1);
  const auto rows = make_rows();
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kQ6_K}) {
    Weights weights;
    make_weights(dtype, pool, weights, Precision::kFast);
    std::vector<float> alone;
    for (int r = 0; r < kMaxRows; ++r) {
      const auto y = multiply("scalar", pool, weights.linear, rows, r, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (const std::string& level : available_levels()) {
      if (level == "scalar") continue;  // it is slow
      for (int num_rows = 1; num_rows <= kMaxRows; ++num_rows) {
        const auto y = multiply(level, pool, weights.linear, rows, 0, num_rows);
        CHECK(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST(every_tile_position_gives_the_same_bits) {
  ThreadPool pool(1);
  const auto rows = make_rows();
  Weights weights;
  make_weights(DType::kQ4_1, pool, weights);
  const std::string level = default_level();
  const auto all = multiply(level, pool, weights.linear, rows, 0, kMaxRows);
  for (int num_rows : {3, 8, 13, 64}) {
    for (int first = 0; first < kMaxRows; ++first) {
      const auto y = multiply(level, pool, weights.linear, rows, first, num_rows);
      for (int i = 0; i < num_rows; ++i) {
        CHECK(std::memcmp(y.data() + i * kOutputs, all.data() + (first + i) % kMaxRows * kOutputs,
                          kOutputs * sizeof(float)) == 0);
      }
    }
  }
}

TEST(the_threshold_moves_the_error_from_16_bits_to_8) {
  ThreadPool pool(1);
  const auto rows = make_rows();
  for (const DType dtype : kTypes) {
    Weights weights;
    make_weights(dtype, pool, weights);
    const auto error = [&](float threshold) {
      weights.linear.residual_threshold = threshold;
      return relative_error(weights, rows, multiply("auto", pool, weights.linear, rows, 0, kMaxRows));
    };
    const double exact = error(0.0f), middle = error(2.0f),
                 none = error(std::numeric_limits<float>::infinity());
    if (!(exact < 5e-5 && none > 1e-3 && none < 2e-2 && middle < 0.7 * none && middle > 4 * exact))
      std::cerr << dtype_info(dtype).name << ": " << exact << " " << middle << " " << none << "\n";
    CHECK(exact < 5e-5);
    CHECK(none > 1e-3 && none < 2e-2);
    CHECK(middle < 0.7 * none && middle > 4 * exact);
  }
}

// The largest sums that the formats allow: codes of 255, activations of +-32512.
TEST(the_largest_sums_fit) {
  ThreadPool pool(1);
  std::vector<float> ones(size_t{kInputs} * kOutputs, 1.0f);
  std::vector<std::vector<float>> rows(kMaxRows, std::vector<float>(kInputs, -3.0f));
  for (size_t r = 0; r < kMaxRows; r += 2) rows[r].assign(kInputs, 3.0f);
  const DTypeInfo& info = dtype_info(DType::kQ8_0);
  std::vector<std::byte> bytes(ones.size() / 32 * static_cast<size_t>(info.block_bytes));
  formats::quantise(DType::kQ8_0, ones.data(), std::ssize(ones), bytes.data());
  TensorInfo tensor;
  tensor.name = "ones";
  tensor.dtype = DType::kQ8_0;
  tensor.shape = {kOutputs, kInputs};
  tensor.data = bytes.data();
  tensor.num_bytes = bytes.size();
  PageArena arena;
  Linear linear;
  linear.append(pack_matrix(tensor, {}, Precision::kPrecise, pool, arena));
  linear.residual_threshold = 0.0f;
  for (const std::string& level : available_levels()) {
    const auto y = multiply(level, pool, linear, rows, 0, kMaxRows);
    for (size_t i = 0; i < y.size(); ++i) {
      const double want = (i / kOutputs % 2 == 0 ? 3.0 : -3.0) * kInputs;
      CHECK(std::abs(y[i] / want - 1) < 1e-3);  // d of the weights is a half
    }
  }
}

TEST_MAIN()
