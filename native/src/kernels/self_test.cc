#include "kernels/self_test.h"

#include <cstring>

#include "base/float_types.h"
#include "deepinfer/status.h"
#include "kernels/dispatch.h"
#include "kernels/formats/formats.h"
#include "kernels/linear.h"
#include "kernels/paged_attention.h"

namespace deepinfer::kernels {
namespace {

// Numbers like activations: mostly small, now and then large. A hash, so that every run tests the same.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  float next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    const float unit = static_cast<float>(state_ >> 40) * 0x1p-23f - 1.0f;
    return (state_ & 63) == 0 ? unit * 20.0f : unit;
  }
  std::vector<float> row(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = next();
    return values;
  }

 private:
  uint64_t state_;
};

// What one level computes in every test, by name of the test.
struct Computed {
  std::string kernel;
  std::vector<float> values;
};

class Exercise {
 public:
  explicit Exercise(const KernelTable& kernels) : kernels_(kernels), pool_(1) {}

  std::vector<Computed> run() {
    rows();
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                              DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
      gemm(dtype, Precision::kFast);
      gemm(dtype, Precision::kPrecise);
    }
    gemm(DType::kBF16, Precision::kBf16);
    gemm(DType::kF32, Precision::kFp32);
    for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kI8}) attention(type);
    return std::move(computed_);
  }

 private:
  void rows() {
    constexpr int kWidth = 576;
    Numbers numbers(1);
    const std::vector<float> x = numbers.row(kWidth), w = numbers.row(kWidth);
    const auto add = [&](const std::string& name, const auto& run) {
      std::vector<float> y(kWidth);
      run(y);
      computed_.push_back({name, std::move(y)});
    };
    const KernelTable& k = kernels_;
    add("rms_norm", [&](auto& y) { k.rms_norm(x.data(), w.data(), 1e-5f, kWidth, y.data()); });
    add("swiglu", [&](auto& y) { k.swiglu(x.data(), w.data(), kWidth, y.data()); });
    add("exp", [&](auto& y) { k.exp(x.data(), kWidth, y.data()); });
    add("rope", [&](auto& y) {
      y = x;
      k.rope(y.data(), kWidth / 64, 64, w.data(), w.data() + 32, 0.125f);
    });
    add("rope, head size 48", [&](auto& y) {
      y = x;
      k.rope(y.data(), kWidth / 48, 48, w.data(), w.data() + 24, 1.0f);
    });
  }

  std::vector<float> multiply(const Linear& linear, const std::vector<float>& x, int num_rows) {
    std::vector<float> y(static_cast<size_t>(num_rows) * static_cast<size_t>(linear.n), 0.5f);
    Activations activations(kernels_, num_rows, linear.k);
    activations.begin(num_rows, linear);
    for (int row = 0; row < num_rows; ++row) activations.set_row(row, x.data() + int64_t{row} * linear.k);
    Multiplier(kernels_, pool_, linear.k).run(linear, activations, {y.data(), linear.n, num_rows % 2 == 0});
    return y;
  }

  void gemm(DType dtype, Precision precision) {
    constexpr int kInputs = 512, kOutputs = 104;  // the last panel is half full
    const DTypeInfo& info = dtype_info(dtype);
    Numbers numbers(2);
    const std::vector<float> weights = numbers.row(int64_t{kInputs} * kOutputs);
    std::vector<std::byte> bytes(weights.size() / static_cast<size_t>(info.block_elems) *
                                 static_cast<size_t>(info.block_bytes));
    formats::quantise(dtype, weights.data(), static_cast<int64_t>(weights.size()), bytes.data());
    TensorInfo tensor;
    tensor.name = "self test";
    tensor.dtype = dtype;
    tensor.shape = {kOutputs, kInputs};
    tensor.data = bytes.data();
    tensor.num_bytes = bytes.size();
    PageArena arena;
    Linear linear;
    linear.append(pack_matrix(tensor, {}, precision, pool_, arena));
    for (const int num_rows : {1, 2, 3, 5, 8, 13, 17, 37}) {
      const std::vector<float> x = numbers.row(int64_t{num_rows} * kInputs);
      computed_.push_back(
          {str_cat("gemm ", info.name, precision == Precision::kPrecise ? " residual m=" : " m=", num_rows),
           multiply(linear, x, num_rows)});
    }
  }

  std::vector<float> attend(KvType type, int num_tokens, int head_dim) {
    constexpr int kHeads = 6, kKvHeads = 2, kBlockTokens = 32, kLayers = 2;
    const int num_blocks = (num_tokens + kBlockTokens - 1) / kBlockTokens;
    PagedAttention attention(kernels_, pool_, make_kv_layout(type, head_dim, kBlockTokens), kHeads, kKvHeads,
                             kLayers);
    Batch batch;
    BlockTables tables;
    for (int t = 0; t < num_tokens; ++t) {
      batch.tokens.push_back(0);
      batch.positions.push_back(t);
      batch.token_sequences.push_back(0);
    }
    batch.sequences.push_back({0, num_tokens, 0});
    for (int b = 0; b < num_blocks; ++b) tables.blocks.push_back(num_blocks - 1 - b);
    tables.offsets = {0, num_blocks};
    batch.groups.push_back(tables);
    attention.plan(batch, 0, 0, 1);
    Numbers numbers(3);
    const std::vector<float> queries = numbers.row(int64_t{num_tokens} * kHeads * head_dim);
    const std::vector<float> keys = numbers.row(int64_t{num_tokens} * kKvHeads * head_dim);
    const std::vector<float> values = numbers.row(int64_t{num_tokens} * kKvHeads * head_dim);
    Pages cache(num_blocks * attention.block_bytes(), "the self test");
    std::byte* layer = cache.data() + attention.layer_bytes();
    for (int t = 0; t < num_tokens; ++t) {
      const int64_t at = int64_t{t} * kKvHeads * head_dim;
      attention.store(layer, t, keys.data() + at, values.data() + at);
    }
    std::vector<float> out(queries.size());
    attention.begin({layer, queries.data(), kHeads * head_dim, out.data(), kHeads * head_dim}, true, 0);
    attention.finish();
    return out;
  }

  void attention(KvType type) {
    static const char* const names[] = {"f16", "bf16", "f32", "int8"};
    for (const auto& [num_tokens, head_dim] : {std::pair{37, 64}, std::pair{270, 48}}) {
      const std::string name =
          str_cat("attention ", names[static_cast<int>(type)], " tokens=", num_tokens, " head=", head_dim);
      computed_.push_back({name, attend(type, num_tokens, head_dim)});
    }
  }

  const KernelTable& kernels_;
  ThreadPool pool_;
  std::vector<Computed> computed_;
};

SelfTestResult compare(const std::string& isa, const Computed& have, const Computed& want) {
  SelfTestResult result{want.kernel, isa, true, str_cat(want.values.size(), " values, same bits")};
  for (size_t i = 0; i < want.values.size(); ++i) {
    if (float_to_bits(have.values[i]) == float_to_bits(want.values[i])) continue;
    result.ok = false;
    result.detail = str_cat("value ", i, " of ", want.values.size(), " is ", have.values[i],
                            ", the scalar kernel says ", want.values[i]);
    break;
  }
  return result;
}

void compare_level(const KernelTable& level, const std::vector<Computed>& want,
                   std::vector<SelfTestResult>& results) {
  const std::vector<Computed> have = Exercise(level).run();
  DI_CHECK(have.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) results.push_back(compare(level.name, have[i], want[i]));
}

}  // namespace

std::vector<SelfTestResult> self_test(const KernelTable& level, const KernelTable& reference) {
  std::vector<SelfTestResult> results;
  compare_level(level, Exercise(reference).run(), results);
  return results;
}

std::vector<SelfTestResult> self_test_all() {
  const std::vector<Computed> want = Exercise(table_for("scalar")).run();  // the slowest, and only once
  std::vector<SelfTestResult> results;
  for (const std::string& name : available_levels()) {
    if (name != "scalar") compare_level(table_for(name), want, results);
  }
  return results;
}

}  // namespace deepinfer::kernels
