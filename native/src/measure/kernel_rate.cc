#include "measure/kernel_rate.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "deepinfer/batch.h"
#include "deepinfer/status.h"
#include "kernels/dispatch.h"
#include "kernels/formats/formats.h"
#include "kernels/linear.h"
#include "kernels/paged_attention.h"
#include "measure/best_time.h"

namespace deepinfer {
namespace {

using namespace kernels;

constexpr int kRepeats = 3;     // calls at least
constexpr int kQueryRows = 64;  // different rows of activations; the products do not care
constexpr int kFilling = 0x30;  // a byte that makes small numbers in every storage type
constexpr int kRowGrain = 4;    // as the models do it
constexpr float kNormEpsilon = 1e-5f;

std::vector<float> some_values(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 2654435761u % 1000) / 1000.0f - 0.5f;
  return values;
}

// Copies of one weight until they fill `rotated_bytes`; at least one.
std::vector<Linear> make_copies(const LinearCase& c, int64_t rotated_bytes, ThreadPool& pool,
                                PageArena& arena) {
  const DTypeInfo& info = dtype_info(c.dtype);
  if (!formats::is_weight_type(c.dtype) || c.n < 1 || c.k < 1 || c.k % info.block_elems != 0 ||
      c.k % kBlock != 0)
    fail(ErrorCode::kBadRequest, "no product of ", c.n, " outputs and ", c.k, " inputs of ", info.name);
  const std::vector<float> row = some_values(static_cast<size_t>(c.k));
  const size_t row_bytes = static_cast<size_t>(c.k / info.block_elems * info.block_bytes);
  std::vector<std::byte> bytes(row_bytes * static_cast<size_t>(c.n));
  formats::quantise(c.dtype, row.data(), c.k, bytes.data());
  for (size_t i = 1; i < static_cast<size_t>(c.n); ++i)
    std::memcpy(bytes.data() + i * row_bytes, bytes.data(), row_bytes);
  TensorInfo tensor;
  tensor.name = "measured";
  tensor.dtype = c.dtype;
  tensor.shape = {c.n, c.k};
  tensor.data = bytes.data();
  std::vector<Linear> copies;
  int64_t total = 0;
  do {
    copies.emplace_back().append(pack_matrix(tensor, {}, c.precision, pool, arena));
    total += copies.back().num_bytes();
  } while (total < rotated_bytes);
  return copies;
}

KvType kv_type(const std::string& name) {
  if (name == "f16") return KvType::kF16;
  if (name == "bf16") return KvType::kBF16;
  if (name == "f32") return KvType::kF32;
  if (name == "int8") return KvType::kI8;
  fail(ErrorCode::kBadRequest, "no cache type is called ", name, "; f16, bf16, f32 or int8");
}

// `sets` x num_sequences sequences; set `set` of them is what one call computes.
Batch attention_batch(const AttentionCase& c, int set, int blocks_each) {
  Batch batch;
  BlockTables tables;
  tables.offsets.push_back(0);
  for (int s = 0; s < c.num_sequences; ++s) {
    const int computed = c.context - c.new_tokens;
    batch.sequences.push_back({batch.num_tokens(), c.new_tokens, computed});
    for (int i = 0; i < c.new_tokens; ++i) {
      batch.tokens.push_back(0);
      batch.positions.push_back(computed + i);
      batch.token_sequences.push_back(s);
    }
    for (int b = 0; b < blocks_each; ++b)
      tables.blocks.push_back((set * c.num_sequences + s) * blocks_each + b);
    tables.offsets.push_back(static_cast<int32_t>(tables.blocks.size()));
  }
  batch.groups.push_back(std::move(tables));
  return batch;
}

}  // namespace

std::vector<KernelRate> measure_linear(const std::string& isa, const LinearCase& linear, double seconds,
                                       int64_t rotated_bytes, ThreadPool& pool) {
  const KernelTable& table = table_for(isa);
  PageArena arena;
  const std::vector<Linear> copies = make_copies(linear, rotated_bytes, pool, arena);
  const std::vector<float> values = some_values(size_t{kQueryRows} * static_cast<size_t>(linear.k));
  const Multiplier multiplier(table, pool, linear.k);
  std::vector<KernelRate> rates;
  size_t next = 0;
  for (const int rows : linear.rows) {
    Activations activations(table, rows, linear.k);
    activations.begin(rows, copies[0]);
    for (int row = 0; row < rows; ++row)
      activations.set_row(row, values.data() + int64_t{row % kQueryRows} * linear.k);
    std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(linear.n));
    const double best = best_wall_seconds(kRepeats, seconds, [&] {
      multiplier.run(copies[next++ % copies.size()], activations, {y.data(), linear.n, false});
    });
    rates.push_back({rows, best, copies[0].num_bytes(), 2.0 * rows * linear.n * linear.k});
  }
  return rates;
}

KernelRate measure_attention(const std::string& isa, const AttentionCase& c, double seconds,
                             int64_t rotated_bytes, ThreadPool& pool) {
  if (c.num_sequences < 1 || c.new_tokens < 1 || c.context < c.new_tokens || c.num_kv_heads < 1 ||
      c.num_heads % c.num_kv_heads != 0 || c.head_dim % kLanes != 0 || c.head_dim < 1 ||
      c.head_dim > kMaxHeadDim || c.block_tokens < 1 || c.block_tokens % kTileTokens != 0)
    fail(ErrorCode::kBadRequest, "no attention of ", c.num_heads, " heads, ", c.num_kv_heads,
         " key-value heads of ", c.head_dim, " over ", c.context, " tokens");
  const KernelTable& table = table_for(isa);
  const KvLayout layout = make_kv_layout(kv_type(c.kv_dtype), c.head_dim, c.block_tokens);
  PagedAttention attention(table, pool, layout, c.num_heads, c.num_kv_heads, 1);
  const int blocks_each = (c.context + c.block_tokens - 1) / c.block_tokens;
  const int64_t set_bytes = int64_t{c.num_sequences} * blocks_each * attention.block_bytes();
  const int sets = static_cast<int>(std::max<int64_t>(1, (rotated_bytes + set_bytes - 1) / set_bytes));
  const Pages cache(set_bytes * sets, "the attention measurement");
  std::memset(cache.data(), kFilling, static_cast<size_t>(cache.size()));
  std::vector<Batch> batches;
  for (int set = 0; set < sets; ++set) batches.push_back(attention_batch(c, set, blocks_each));
  const int64_t width = int64_t{c.num_heads} * c.head_dim;
  const int64_t num_tokens = int64_t{c.num_sequences} * c.new_tokens;
  const std::vector<float> queries = some_values(static_cast<size_t>(num_tokens * width));
  std::vector<float> out(queries.size());
  size_t next = 0;
  const double best = best_wall_seconds(kRepeats, seconds, [&] {
    attention.plan(batches[next++ % batches.size()], 0, 0, c.num_sequences);
    attention.begin({cache.data(), queries.data(), width, out.data(), width}, true, 0);
    attention.finish();
  });
  // Query i of a sequence's new tokens sees computed + i + 1 positions.
  const double seen = static_cast<double>(c.new_tokens) * (c.context - c.new_tokens) +
                      0.5 * c.new_tokens * (c.new_tokens + 1.0);
  const int64_t bytes = int64_t{c.num_sequences} * c.context * attention.block_bytes() / c.block_tokens;
  return {static_cast<int>(num_tokens), best, bytes,
          4.0 * static_cast<double>(width) * c.num_sequences * seen};
}

KernelRate measure_rows(const std::string& isa, const std::string& kernel, int width, int rows,
                        double seconds, ThreadPool& pool) {
  if (width < kBlock || width % kBlock != 0 || rows < 1)
    fail(ErrorCode::kBadRequest, "no ", rows, " rows of ", width, " values");
  const KernelTable& table = table_for(isa);
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(width);
  const std::vector<float> x = some_values(count), weight = some_values(static_cast<size_t>(width));
  std::vector<float> y(count);
  const auto at = [&](int row) { return static_cast<size_t>(row) * static_cast<size_t>(width); };
  const int64_t values = static_cast<int64_t>(count);
  if (kernel == "rms_norm") {
    const double best = best_wall_seconds(kRepeats, seconds, [&] {
      pool.parallel_for(rows, kRowGrain, [&](int row, int) {
        table.rms_norm(x.data() + at(row), weight.data(), kNormEpsilon, width, y.data() + at(row));
      });
    });
    return {rows, best, values * 8, 4.0 * static_cast<double>(values)};
  }
  if (kernel == "swiglu") {
    const double best = best_wall_seconds(kRepeats, seconds, [&] {
      pool.parallel_for(rows, kRowGrain, [&](int row, int) {
        table.swiglu(x.data() + at(row), x.data() + at(row), width, y.data() + at(row));
      });
    });
    return {rows, best, values * 12, 4.0 * static_cast<double>(values)};
  }
  const bool is_residual = kernel == "prepare_residual", is_int8 = kernel == "prepare_int8" || is_residual;
  const bool is_bf16 = kernel == "prepare_bf16";
  if (!is_int8 && !is_bf16 && kernel != "prepare_fp32")
    fail(ErrorCode::kBadRequest, "no row kernel is called ", kernel);
  LinearCase small;
  small.dtype = is_int8 ? DType::kQ8_0 : is_bf16 ? DType::kBF16 : DType::kF32;
  small.precision = is_residual ? Precision::kPrecise
                    : is_int8   ? Precision::kFast
                    : is_bf16   ? Precision::kBf16
                                : Precision::kFp32;
  small.n = kLanes;
  small.k = width;
  PageArena arena;
  const std::vector<Linear> linear = make_copies(small, 0, pool, arena);
  Activations activations(table, rows, width);
  activations.begin(rows, linear[0]);
  const double best = best_wall_seconds(kRepeats, seconds, [&] {
    pool.parallel_for(rows, kRowGrain, [&](int row, int) { activations.set_row(row, x.data() + at(row)); });
  });
  return {rows, best,
          values * (is_residual ? 6
                    : is_int8   ? 5
                    : is_bf16   ? 6
                                : 8),
          static_cast<double>(values)};
}

}  // namespace deepinfer
