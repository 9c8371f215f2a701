// Speed of single kernels at a model's shapes, on the pool, by wall time; weights and cache are rotated
// through more memory than the processor's caches hold, as they are in a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepinfer/tensor_file.h"
#include "deepinfer/threads.h"
#include "kernels/matrix.h"

namespace deepinfer {

struct KernelRate {
  int rows = 0;           // of activations, or new tokens
  double seconds = 0;     // of one call, the best
  int64_t num_bytes = 0;  // that a call must read from memory: weights, or cached keys and values
  double num_ops = 0;     // a multiply-add is two
};

struct LinearCase {
  DType dtype = DType::kF32;
  kernels::Precision precision = kernels::Precision::kPrecise;
  int n = 0;  // outputs
  int k = 0;  // inputs, a multiple of 32
  std::vector<int> rows;
};

// The product of `rows` activations with one weight [n, k], conversion of the activations not counted.
std::vector<KernelRate> measure_linear(const std::string& isa, const LinearCase& linear, double seconds,
                                       int64_t rotated_bytes, ThreadPool& pool);

struct AttentionCase {
  std::string kv_dtype = "f16";
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int block_tokens = 32;
  int num_sequences = 0;
  int context = 0;     // tokens in the cache of each sequence, the new ones included
  int new_tokens = 1;  // of each sequence
};

// Attention of one layer.
KernelRate measure_attention(const std::string& isa, const AttentionCase& attention, double seconds,
                             int64_t rotated_bytes, ThreadPool& pool);

// Row kernels, in the caches: "rms_norm", "swiglu", "prepare_int8", "prepare_residual", "prepare_bf16" or
// "prepare_fp32" on rows of `width` values (num_bytes: read and written). width is a multiple of 32.
KernelRate measure_rows(const std::string& isa, const std::string& kernel, int width, int rows,
                        double seconds, ThreadPool& pool);

}  // namespace deepinfer
