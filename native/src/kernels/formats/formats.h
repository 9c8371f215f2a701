// Weight formats, one scalar codec each. The dequantise functions are the specification of what a file's
// bytes mean; packing and kernels are tested against them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "deepinfer/tensor_file.h"

namespace deepinfer::formats {

// Decodes `count` consecutive elements of a row; count is a multiple of the format's block.
// Throws Error{kUnsupported} for types that hold no weights (integers, booleans, 8-bit floats).
void dequantise(DType dtype, const std::byte* blocks, int64_t count, float* values);

// Nearest-code encoders for tests and generated models: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0, and simple
// (not search-optimised) Q4_K Q5_K Q6_K. Every code they write is valid.
void quantise(DType dtype, const float* values, int64_t count, std::byte* blocks);

bool is_weight_type(DType dtype);      // dequantise() knows it
bool is_block_quantised(DType dtype);  // several elements share a scale

// Scale and minimum number `index` (0..7) of a Q4_K or Q5_K super-block: 6-bit codes in 12 bytes.
void unpack_scale_min(const uint8_t* packed, int index, uint8_t* scale, uint8_t* minimum);

// One block of each format; `values` holds its block_elems elements.
void dequantise_q4_0(const std::byte* block, float* values);
void dequantise_q4_1(const std::byte* block, float* values);
void dequantise_q5_0(const std::byte* block, float* values);
void dequantise_q5_1(const std::byte* block, float* values);
void dequantise_q8_0(const std::byte* block, float* values);
void dequantise_q4_k(const std::byte* block, float* values);
void dequantise_q5_k(const std::byte* block, float* values);
void dequantise_q6_k(const std::byte* block, float* values);

void quantise_q4_0(const float* values, std::byte* block);
void quantise_q4_1(const float* values, std::byte* block);
void quantise_q5_0(const float* values, std::byte* block);
void quantise_q5_1(const float* values, std::byte* block);
void quantise_q8_0(const float* values, std::byte* block);
void quantise_q4_k(const float* values, std::byte* block);
void quantise_q5_k(const float* values, std::byte* block);
void quantise_q6_k(const float* values, std::byte* block);

}  // namespace deepinfer::formats
