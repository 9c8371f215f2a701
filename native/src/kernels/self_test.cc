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

class Tester {
 public:
  Tester(const KernelTable& level, const KernelTable& reference)
      : level_(level), reference_(reference), pool_(1) {}

  std::vector<SelfTestResult> run() {
    rows();
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                              DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
      gemm(dtype, Precision::kFast);
    }
    gemm(DType::kBF16, Precision::kBf16);
    gemm(DType::kF32, Precision::kFp32);
    for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kI8}) attention(type);
    return std::move(results_);
  }

 private:
  void compare(const std::string& kernel, const std::vector<float>& have, const std::vector<float>& want) {
    SelfTestResult result{kernel, level_.name, true, str_cat(want.size(), " values, same bits")};
    for (size_t i = 0; i < want.size(); ++i) {
      if (float_to_bits(have[i]) == float_to_bits(want[i])) continue;
      result.ok = false;
      result.detail =
          str_cat("value ", i, " of ", want.size(), " is ", have[i], ", the scalar kernel says ", want[i]);
      break;
    }
    results_.push_back(std::move(result));
  }

  void rows() {
    constexpr int kWidth = 576;
    Numbers numbers(1);
    std::vector<float> x = numbers.row(kWidth), w = numbers.row(kWidth);
    const auto both = [&](const std::string& name, const auto& run) {
      std::vector<float> have(kWidth), want(kWidth);
      run(level_, have);
      run(reference_, want);
      compare(name, have, want);
    };
    both("rms_norm",
         [&](const KernelTable& k, auto& y) { k.rms_norm(x.data(), w.data(), 1e-5f, kWidth, y.data()); });
    both("swiglu", [&](const KernelTable& k, auto& y) { k.swiglu(x.data(), w.data(), kWidth, y.data()); });
    both("exp", [&](const KernelTable& k, auto& y) { k.exp(x.data(), kWidth, y.data()); });
    both("rope", [&](const KernelTable& k, auto& y) {
      y = x;
      k.rope(y.data(), kWidth / 64, 64, w.data(), w.data() + 32, 0.125f);
    });
    both("rope, head size 48", [&](const KernelTable& k, auto& y) {
      y = x;
      k.rope(y.data(), kWidth / 48, 48, w.data(), w.data() + 24, 1.0f);
    });
  }

  std::vector<float> multiply(const KernelTable& kernels, const Linear& linear, const std::vector<float>& x,
                              int num_rows) {
    std::vector<float> y(static_cast<size_t>(num_rows) * static_cast<size_t>(linear.n), 0.5f);
    Activations activations(kernels, num_rows, linear.k);
    activations.begin(num_rows, linear);
    for (int row = 0; row < num_rows; ++row) activations.set_row(row, x.data() + int64_t{row} * linear.k);
    Multiplier(kernels, pool_, linear.k).run(linear, activations, {y.data(), linear.n, num_rows % 2 == 0});
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
      compare(str_cat("gemm ", info.name, " m=", num_rows), multiply(level_, linear, x, num_rows),
              multiply(reference_, linear, x, num_rows));
    }
  }

  std::vector<float> attend(const KernelTable& kernels, KvType type, int num_tokens, int head_dim) {
    constexpr int kHeads = 6, kKvHeads = 2, kBlockTokens = 32, kLayers = 2;
    const int num_blocks = (num_tokens + kBlockTokens - 1) / kBlockTokens;
    PagedAttention attention(kernels, pool_, make_kv_layout(type, head_dim, kBlockTokens), kHeads, kKvHeads,
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
    attention.plan(batch, 0);
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
    attention.run(layer, queries.data(), kHeads * head_dim, out.data(), kHeads * head_dim);
    return out;
  }

  void attention(KvType type) {
    static const char* const names[] = {"f16", "bf16", "f32", "int8"};
    for (const auto& [num_tokens, head_dim] : {std::pair{37, 64}, std::pair{270, 48}}) {
      compare(
          str_cat("attention ", names[static_cast<int>(type)], " tokens=", num_tokens, " head=", head_dim),
          attend(level_, type, num_tokens, head_dim), attend(reference_, type, num_tokens, head_dim));
    }
  }

  const KernelTable& level_;
  const KernelTable& reference_;
  ThreadPool pool_;
  std::vector<SelfTestResult> results_;
};

}  // namespace

std::vector<SelfTestResult> self_test(const KernelTable& level, const KernelTable& reference) {
  return Tester(level, reference).run();
}

std::vector<SelfTestResult> self_test_all() {
  std::vector<SelfTestResult> all;
  for (const std::string& name : available_levels()) {
    if (name == "scalar") continue;
    for (SelfTestResult& result : self_test(table_for(name), table_for("scalar")))
      all.push_back(std::move(result));
  }
  return all;
}

}  // namespace deepinfer::kernels
