// Byte layout of a panel, block after block (32 elements of k, 16 columns c):
//   nibbles  4 words of 64 bytes; byte 4c + t of word j holds element 8j + t (low half) and 8j + 4 + t (high)
//   bytes    8 words of 64 bytes; byte 4c + t of word g holds element 4g + t
//   then     16 d (half or fp32), and 16 m, or for kByteSub16 the 16 d of the second half of the block
//   bf16     [k / 2][c][2], fp32 [k][c]
// Signed codes are stored with an offset, because the dot instructions take unsigned weights.
#include "kernels/matrix.h"

#include <cstring>

#include "base/float_types.h"
#include "deepinfer/status.h"
#include "kernels/formats/formats.h"

namespace deepinfer::kernels {
namespace {

struct Packing {
  PackFormat format;
  float offset;
};

Packing packing_for(Arithmetic arithmetic, DType dtype) {
  if (arithmetic == Arithmetic::kFp32) return {PackFormat::kF32, 0};
  if (arithmetic == Arithmetic::kBf16) return {PackFormat::kPairBf16, 0};
  switch (dtype) {
    case DType::kQ4_0: return {PackFormat::kNibbleD16, 8};
    case DType::kQ4_1: return {PackFormat::kNibbleDM16, 0};
    case DType::kQ5_0: return {PackFormat::kByteD16, 16};
    case DType::kQ5_1: return {PackFormat::kByteDM16, 0};
    case DType::kQ8_0: return {PackFormat::kByteD16, 128};
    case DType::kQ4_K: return {PackFormat::kNibbleDM32, 0};
    case DType::kQ5_K: return {PackFormat::kByteDM32, 0};
    case DType::kQ6_K: return {PackFormat::kByteSub16, 32};
    default: break;
  }
  DI_CHECK(false, "no int8 packing for ", dtype_info(dtype).name);
}

bool has_nibbles(PackFormat format) {
  return format == PackFormat::kNibbleD16 || format == PackFormat::kNibbleDM16 ||
         format == PackFormat::kNibbleDM32;
}

// One block of one column, decoded from the file: unsigned codes and the scales as fp32 (exact).
struct Codes {
  uint8_t code[kBlock];
  float d, m;  // m: minimum, or d of the second half (Q6_K)
};

float load_half(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return f16_to_float(half);
}

void split_nibbles(const std::byte* nibbles, uint8_t* code) {
  for (int j = 0; j < 16; ++j) {
    code[j] = std::to_integer<uint8_t>(nibbles[j] & std::byte{15});
    code[16 + j] = std::to_integer<uint8_t>(nibbles[j] >> 4);
  }
}

void add_fifth_bits(const std::byte* word, uint8_t* code) {
  uint32_t bits;
  std::memcpy(&bits, word, sizeof bits);
  for (int j = 0; j < kBlock; ++j) code[j] = static_cast<uint8_t>(code[j] | (((bits >> j) & 1u) << 4));
}

// Sub-block s of a Q4_K or Q5_K super-block; value = d * code + m with m = -dmin * minimum.
void read_45_k(const std::byte* block, const std::byte* nibbles, const std::byte* fifth_bits, int s,
               Codes& codes) {
  uint8_t scale, minimum;
  formats::unpack_scale_min(reinterpret_cast<const uint8_t*>(block + 4), s, &scale, &minimum);
  codes.d = load_half(block) * static_cast<float>(scale);
  codes.m = -(load_half(block + 2) * static_cast<float>(minimum));
  const int shift = 4 * (s % 2);
  for (int e = 0; e < kBlock; ++e) {
    int code = (std::to_integer<int>(nibbles[(s / 2) * 32 + e]) >> shift) & 15;
    if (fifth_bits != nullptr) code |= ((std::to_integer<int>(fifth_bits[e]) >> s) & 1) << 4;
    codes.code[e] = static_cast<uint8_t>(code);
  }
}

// Elements 32s .. 32s + 31 of a Q6_K super-block.
void read_6_k(const std::byte* block, int s, Codes& codes) {
  const int half = s / 4, quarter = s % 4;
  const std::byte* low = block + half * 64 + (quarter % 2) * 32;
  const std::byte* high = block + 128 + half * 32;
  for (int e = 0; e < kBlock; ++e) {
    const int low_bits = (std::to_integer<int>(low[e]) >> (4 * (quarter / 2))) & 15;
    const int high_bits = (std::to_integer<int>(high[e]) >> (2 * quarter)) & 3;
    codes.code[e] = static_cast<uint8_t>(low_bits | (high_bits << 4));
  }
  const float d = load_half(block + 208);
  codes.d = d * static_cast<float>(static_cast<int8_t>(block[192 + 2 * s]));
  codes.m = d * static_cast<float>(static_cast<int8_t>(block[192 + 2 * s + 1]));
}

// Block b (of 32 elements) of a row.
void read_codes(DType dtype, const std::byte* row, int b, Codes& codes) {
  const int64_t bytes = dtype_info(dtype).block_bytes;
  const std::byte* block = row + (dtype_info(dtype).block_elems == 256 ? b / 8 : b) * bytes;
  codes.m = 0;
  switch (dtype) {
    case DType::kQ4_0: codes.d = load_half(block); return split_nibbles(block + 2, codes.code);
    case DType::kQ4_1:
      codes.d = load_half(block);
      codes.m = load_half(block + 2);
      return split_nibbles(block + 4, codes.code);
    case DType::kQ5_0:
      codes.d = load_half(block);
      split_nibbles(block + 6, codes.code);
      return add_fifth_bits(block + 2, codes.code);
    case DType::kQ5_1:
      codes.d = load_half(block);
      codes.m = load_half(block + 2);
      split_nibbles(block + 8, codes.code);
      return add_fifth_bits(block + 4, codes.code);
    case DType::kQ8_0:
      codes.d = load_half(block);
      for (int e = 0; e < kBlock; ++e)
        codes.code[e] = std::to_integer<uint8_t>(block[2 + e] ^ std::byte{0x80});
      return;
    case DType::kQ4_K: return read_45_k(block, block + 16, nullptr, b % 8, codes);
    case DType::kQ5_K: return read_45_k(block, block + 48, block + 16, b % 8, codes);
    case DType::kQ6_K: return read_6_k(block, b % 8, codes);
    default: DI_CHECK(false, dtype_info(dtype).name);
  }
}

void store_scale(float value, int column, bool halves, std::byte* scales) {
  if (halves) {
    const uint16_t half = float_to_f16_saturating(value);  // exact: it was a half in the file
    std::memcpy(scales + 2 * column, &half, sizeof half);
  } else {
    std::memcpy(scales + 4 * column, &value, sizeof value);
  }
}

void write_codes(PackFormat format, int column, const Codes& codes, std::byte* block) {
  auto* bytes = reinterpret_cast<uint8_t*>(block);
  if (has_nibbles(format)) {
    for (int j = 0; j < 4; ++j) {
      for (int t = 0; t < 4; ++t) {
        const int low = codes.code[8 * j + t], high = codes.code[8 * j + 4 + t];
        bytes[64 * j + 4 * column + t] = static_cast<uint8_t>(low | (high << 4));
      }
    }
  } else {
    for (int g = 0; g < 8; ++g) std::memcpy(bytes + 64 * g + 4 * column, codes.code + 4 * g, 4);
  }
  std::byte* scales = block + (has_nibbles(format) ? 256 : 512);
  const bool only_d = format == PackFormat::kNibbleD16 || format == PackFormat::kByteD16;
  const bool halves = only_d || format == PackFormat::kNibbleDM16 || format == PackFormat::kByteDM16;
  store_scale(codes.d, column, halves, scales);
  if (!only_d) store_scale(codes.m, column, halves, scales + (halves ? 32 : 64));
}

void pack_int8_column(DType dtype, const std::byte* row, const PackedView& view, int column,
                      std::byte* panel) {
  const int64_t step = packed_block_bytes(view.format);
  Codes codes;
  for (int b = 0; b < view.k / kBlock; ++b) {
    read_codes(dtype, row, b, codes);
    write_codes(view.format, column, codes, panel + b * step);
  }
}

void pack_float_column(DType dtype, const std::byte* row, const PackedView& view, int column,
                       std::byte* panel) {
  constexpr int kChunk = 256;
  const DTypeInfo& info = dtype_info(dtype);
  float values[kChunk];
  for (int start = 0; start < view.k; start += kChunk) {
    const int count = std::min(kChunk, view.k - start);
    formats::dequantise(dtype, row + static_cast<int64_t>(start) / info.block_elems * info.block_bytes, count,
                        values);
    for (int i = 0; i < count; ++i) {
      const int64_t k = start + i;
      if (view.format == PackFormat::kF32) {
        std::memcpy(panel + (k * kLanes + column) * 4, values + i, 4);
      } else {
        const uint16_t half = float_to_bf16(values[i]);
        std::memcpy(panel + ((k / 2 * kLanes + column) * 2 + k % 2) * 2, &half, 2);
      }
    }
  }
}

}  // namespace

Precision parse_precision(std::string_view name) {
  if (name == "fast") return Precision::kFast;
  if (name == "bf16") return Precision::kBf16;
  if (name == "fp32") return Precision::kFp32;
  fail(ErrorCode::kBadRequest, "unknown precision \"", name, "\"; it is one of fast, bf16, fp32");
}

Arithmetic arithmetic_for(Precision precision, DType dtype) {
  if (precision == Precision::kFp32) return Arithmetic::kFp32;
  if (precision == Precision::kFast && formats::is_block_quantised(dtype)) return Arithmetic::kInt8;
  return Arithmetic::kBf16;
}

int64_t packed_block_bytes(PackFormat format) {
  switch (format) {
    case PackFormat::kNibbleD16: return 256 + 32;
    case PackFormat::kNibbleDM16: return 256 + 64;
    case PackFormat::kNibbleDM32: return 256 + 128;
    case PackFormat::kByteD16: return 512 + 32;
    case PackFormat::kByteDM16: return 512 + 64;
    case PackFormat::kByteDM32:
    case PackFormat::kByteSub16: return 512 + 128;
    case PackFormat::kPairBf16: return kBlock * kLanes * 2;
    case PackFormat::kF32: return kBlock * kLanes * 4;
  }
  DI_CHECK(false);
}

PackedMatrix pack_matrix(const TensorInfo& tensor, std::span<const int32_t> row_order, Precision precision,
                         ThreadPool& pool) {
  DI_CHECK(tensor.shape.size() == 2, tensor.name);
  if (tensor.shape[1] % kBlock != 0) {
    fail(ErrorCode::kUnsupported, "tensor ", tensor.name, " has ", tensor.shape[1],
         " input features; supported are multiples of ", kBlock);
  }
  const Packing packing = packing_for(arithmetic_for(precision, tensor.dtype), tensor.dtype);
  PackedMatrix matrix;
  PackedView& view = matrix.view;
  view.format = packing.format;
  view.offset = packing.offset;
  view.n = static_cast<int>(row_order.empty() ? tensor.shape[0] : static_cast<int64_t>(row_order.size()));
  view.k = static_cast<int>(tensor.shape[1]);
  view.num_panels = (view.n + kLanes - 1) / kLanes;
  view.panel_bytes = view.k / kBlock * packed_block_bytes(view.format);
  matrix.memory = Pages(view.num_panels * view.panel_bytes, "weights");
  view.data = matrix.memory.data();
  const DTypeInfo& info = dtype_info(tensor.dtype);
  const int64_t row_bytes = tensor.shape[1] / info.block_elems * info.block_bytes;
  const auto pack_panel = [&](int panel_index, int) {
    std::byte* panel = matrix.memory.data() + panel_index * view.panel_bytes;
    for (int c = 0; c < kLanes && panel_index * kLanes + c < view.n; ++c) {
      const int column = panel_index * kLanes + c;
      const int64_t source = row_order.empty() ? column : row_order[static_cast<size_t>(column)];
      DI_CHECK(source >= 0 && source < tensor.shape[0]);
      const std::byte* row = tensor.data + source * row_bytes;
      if (view.format == PackFormat::kF32 || view.format == PackFormat::kPairBf16) {
        pack_float_column(tensor.dtype, row, view, c, panel);
      } else {
        pack_int8_column(tensor.dtype, row, view, c, panel);
      }
    }
  };
  pool.parallel_for(view.num_panels, 4, pack_panel);
  return matrix;
}

namespace {

float load_scale(const std::byte* scales, int column, bool halves) {
  if (halves) return load_half(scales + 2 * column);
  float value;
  std::memcpy(&value, scales + 4 * column, sizeof value);
  return value;
}

void unpack_int8_block(const PackedView& matrix, int column, const std::byte* block, float* values) {
  const bool nibbles = has_nibbles(matrix.format), sub16 = matrix.format == PackFormat::kByteSub16;
  const bool only_d = matrix.format == PackFormat::kNibbleD16 || matrix.format == PackFormat::kByteD16;
  const bool halves =
      only_d || matrix.format == PackFormat::kNibbleDM16 || matrix.format == PackFormat::kByteDM16;
  const std::byte* scales = block + (nibbles ? 256 : 512);
  const float d = load_scale(scales, column, halves);
  const float second = only_d ? 0 : load_scale(scales + (halves ? 32 : 64), column, halves);
  for (int e = 0; e < kBlock; ++e) {
    const std::byte byte =
        nibbles ? block[64 * (e / 8) + 4 * column + e % 4] : block[64 * (e / 4) + 4 * column + e % 4];
    const int code =
        nibbles ? (std::to_integer<int>(byte) >> (e / 4 % 2 * 4)) & 15 : std::to_integer<int>(byte);
    const float centred = static_cast<float>(code) - matrix.offset;
    values[e] = sub16 ? (e < 16 ? d : second) * centred : d * centred + second;
  }
}

}  // namespace

void unpack_column(const PackedView& matrix, int column, float* values) {
  DI_CHECK(column >= 0 && column < matrix.n);
  const std::byte* panel = matrix.data + column / kLanes * matrix.panel_bytes;
  const int c = column % kLanes;
  for (int k = 0; k < matrix.k; ++k) {
    if (matrix.format == PackFormat::kF32) {
      std::memcpy(values + k, panel + (static_cast<int64_t>(k) * kLanes + c) * 4, 4);
    } else if (matrix.format == PackFormat::kPairBf16) {
      uint16_t half;
      std::memcpy(&half, panel + ((static_cast<int64_t>(k) / 2 * kLanes + c) * 2 + k % 2) * 2, 2);
      values[k] = bf16_to_float(half);
    } else if (k % kBlock == 0) {
      unpack_int8_block(matrix, c, panel + k / kBlock * packed_block_bytes(matrix.format), values + k);
    }
  }
}

}  // namespace deepinfer::kernels
