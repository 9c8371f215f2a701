#include "kernels/formats/formats.h"

#include <cstring>

#include "base/float_types.h"
#include "deepinfer/status.h"

namespace deepinfer::formats {
namespace {

struct Codec {
  DType dtype;
  void (*dequantise)(const std::byte* block, float* values);
  void (*quantise)(const float* values, std::byte* block);
};

template <typename Bits, float (*kDecode)(Bits)>
void decode_one(const std::byte* block, float* values) {
  Bits bits;
  std::memcpy(&bits, block, sizeof bits);
  *values = kDecode(bits);
}
template <typename Bits, Bits (*kEncode)(float)>
void encode_one(const float* values, std::byte* block) {
  const Bits bits = kEncode(*values);
  std::memcpy(block, &bits, sizeof bits);
}

constexpr Codec kCodecs[] = {
    {DType::kF32, decode_one<uint32_t, bits_to_float>, encode_one<uint32_t, float_to_bits>},
    {DType::kF16, decode_one<uint16_t, f16_to_float>, encode_one<uint16_t, float_to_f16_saturating>},
    {DType::kBF16, decode_one<uint16_t, bf16_to_float>, encode_one<uint16_t, float_to_bf16>},
    {DType::kQ4_0, dequantise_q4_0, quantise_q4_0},
    {DType::kQ4_1, dequantise_q4_1, quantise_q4_1},
    {DType::kQ5_0, dequantise_q5_0, quantise_q5_0},
    {DType::kQ5_1, dequantise_q5_1, quantise_q5_1},
    {DType::kQ8_0, dequantise_q8_0, quantise_q8_0},
    {DType::kQ4_K, dequantise_q4_k, quantise_q4_k},
    {DType::kQ5_K, dequantise_q5_k, quantise_q5_k},
    {DType::kQ6_K, dequantise_q6_k, quantise_q6_k},
};

const Codec* find_codec(DType dtype) {
  for (const Codec& codec : kCodecs) {
    if (codec.dtype == dtype) return &codec;
  }
  return nullptr;
}

const Codec& require_codec(DType dtype) {
  const Codec* codec = find_codec(dtype);
  if (codec == nullptr) {
    fail(ErrorCode::kUnsupported, "tensor type ", dtype_info(dtype).name,
         " holds no weights this engine can use; supported: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K "
         "Q6_K");
  }
  return *codec;
}

}  // namespace

bool is_weight_type(DType dtype) { return find_codec(dtype) != nullptr; }

bool is_block_quantised(DType dtype) { return is_weight_type(dtype) && dtype_info(dtype).block_elems > 1; }

void dequantise(DType dtype, const std::byte* blocks, int64_t count, float* values) {
  const Codec& codec = require_codec(dtype);
  const DTypeInfo& info = dtype_info(dtype);
  DI_CHECK(count % info.block_elems == 0, info.name, " ", count);
  for (int64_t i = 0; i < count / info.block_elems; ++i) {
    codec.dequantise(blocks + i * info.block_bytes, values + i * info.block_elems);
  }
}

void quantise(DType dtype, const float* values, int64_t count, std::byte* blocks) {
  const Codec& codec = require_codec(dtype);
  const DTypeInfo& info = dtype_info(dtype);
  DI_CHECK(count % info.block_elems == 0, info.name, " ", count);
  for (int64_t i = 0; i < count / info.block_elems; ++i) {
    codec.quantise(values + i * info.block_elems, blocks + i * info.block_bytes);
  }
}

}  // namespace deepinfer::formats
