// Weights as kernels want them: packed once at load into panels of 16 columns.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/pages.h"
#include "deepinfer/tensor_file.h"
#include "deepinfer/threads.h"
#include "kernels/kernels.h"

namespace deepinfer::kernels {

// What the user asks for; with the type of a weight it decides the arithmetic of its products.
enum class Precision : uint8_t {
  kPrecise,  // block-quantised weights: int8 activations with residuals; others: bf16
  kFast,     // block-quantised weights: int8 activations; others: bf16
  kBf16,     // weights and activations bf16
  kFp32,     // weights decoded to fp32
};
// Which blocks of activations get residuals, see ActivationView. 0: all, infinity: none.
constexpr float kDefaultResidualThreshold = 3.5f;
Precision parse_precision(std::string_view name);  // throws Error{kBadRequest}

Arithmetic arithmetic_for(Precision precision, DType dtype);

// Packs a weight [n, k] into memory of `arena`. Output column i comes from row `row_order[i]` of the tensor
// (empty: row i). k must be a multiple of 32. The work is split over the pool.
PackedView pack_matrix(const TensorInfo& tensor, std::span<const int32_t> row_order, Precision precision,
                       ThreadPool& pool, PageArena& arena);

// Bytes of one block (32 elements of k, 16 columns) of a packed panel.
int64_t packed_block_bytes(PackFormat format);

}  // namespace deepinfer::kernels
