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

// One block of one column, as it is packed: unsigned codes, and the bits of the scales (halves where the file
// has halves).
struct Codes {
  uint8_t code[kBlock];
  uint32_t d, m;  // m: minimum, or d of the second half (Q6_K)
};

uint16_t half_bits(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return half;
}
float load_half(const std::byte* at) { return f16_to_float(half_bits(at)); }

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
  codes.d = float_to_bits(load_half(block) * static_cast<float>(scale));
  codes.m = float_to_bits(-(load_half(block + 2) * static_cast<float>(minimum)));
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
  codes.d = float_to_bits(d * static_cast<float>(static_cast<int8_t>(block[192 + 2 * s])));
  codes.m = float_to_bits(d * static_cast<float>(static_cast<int8_t>(block[192 + 2 * s + 1])));
}

// Elements 32 sub .. 32 sub + 31 of a block of the file.
void read_codes(DType dtype, const std::byte* block, int sub, Codes& codes) {
  codes.d = half_bits(block);
  codes.m = 0;
  switch (dtype) {
    case DType::kQ4_0: return split_nibbles(block + 2, codes.code);
    case DType::kQ4_1: codes.m = half_bits(block + 2); return split_nibbles(block + 4, codes.code);
    case DType::kQ5_0: split_nibbles(block + 6, codes.code); return add_fifth_bits(block + 2, codes.code);
    case DType::kQ5_1:
      codes.m = half_bits(block + 2);
      split_nibbles(block + 8, codes.code);
      return add_fifth_bits(block + 4, codes.code);
    case DType::kQ8_0:
      for (int e = 0; e < kBlock; ++e)
        codes.code[e] = std::to_integer<uint8_t>(block[2 + e] ^ std::byte{0x80});
      return;
    case DType::kQ4_K: return read_45_k(block, block + 16, nullptr, sub, codes);
    case DType::kQ5_K: return read_45_k(block, block + 48, block + 16, sub, codes);
    case DType::kQ6_K: return read_6_k(block, sub, codes);
    default: DI_CHECK(false, dtype_info(dtype).name);
  }
}

void store_scale(uint32_t bits, int column, bool halves, std::byte* scales) {
  if (halves) {
    const auto half = static_cast<uint16_t>(bits);
    std::memcpy(scales + 2 * column, &half, sizeof half);
  } else {
    std::memcpy(scales + 4 * column, &bits, sizeof bits);
  }
}

void write_codes(PackFormat format, int column, const Codes& codes, std::byte* block) {
  uint32_t words[8];  // four codes each
  std::memcpy(words, codes.code, sizeof words);
  if (has_nibbles(format)) {
    for (int j = 0; j < 4; ++j) {
      const uint32_t both = words[2 * j] | (words[2 * j + 1] << 4);
      std::memcpy(block + 64 * j + 4 * column, &both, sizeof both);
    }
  } else {
    for (int g = 0; g < 8; ++g) std::memcpy(block + 64 * g + 4 * column, words + g, sizeof words[g]);
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
  const DTypeInfo& info = dtype_info(dtype);
  Codes codes;
  for (int k = 0; k < view.k; k += info.block_elems) {
    for (int sub = 0; sub < info.block_elems / kBlock; ++sub) {
      read_codes(dtype, row, sub, codes);
      write_codes(view.format, column, codes, panel);
      panel += step;
    }
    row += info.block_bytes;
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
  if (name == "precise") return Precision::kPrecise;
  if (name == "fast") return Precision::kFast;
  if (name == "bf16") return Precision::kBf16;
  if (name == "fp32") return Precision::kFp32;
  fail(ErrorCode::kBadRequest, "unknown precision \"", name, "\"; it is one of precise, fast, bf16, fp32");
}

Arithmetic arithmetic_for(Precision precision, DType dtype) {
  if (precision == Precision::kFp32) return Arithmetic::kFp32;
  if (precision == Precision::kBf16 || !formats::is_block_quantised(dtype)) return Arithmetic::kBf16;
  return precision == Precision::kFast ? Arithmetic::kInt8 : Arithmetic::kInt8Residual;
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

PackedView pack_matrix(const TensorInfo& tensor, std::span<const int32_t> row_order, Precision precision,
                       ThreadPool& pool, PageArena& arena) {
  DI_CHECK(tensor.shape.size() == 2, tensor.name);
  if (tensor.shape[1] % kBlock != 0) {
    fail(ErrorCode::kUnsupported, "tensor ", tensor.name, " has ", tensor.shape[1],
         " input features; supported are multiples of ", kBlock);
  }
  PackedView view;
  view.arithmetic = arithmetic_for(precision, tensor.dtype);
  const Packing packing = packing_for(view.arithmetic, tensor.dtype);
  view.format = packing.format;
  view.offset = packing.offset;
  view.n = static_cast<int>(row_order.empty() ? tensor.shape[0] : static_cast<int64_t>(row_order.size()));
  view.k = static_cast<int>(tensor.shape[1]);
  view.num_panels = (view.n + kLanes - 1) / kLanes;
  view.panel_bytes = view.k / kBlock * packed_block_bytes(view.format);
  std::byte* memory = arena.take(view.num_bytes(), "weights");
  view.data = memory;
  const DTypeInfo& info = dtype_info(tensor.dtype);
  const int64_t row_bytes = tensor.shape[1] / info.block_elems * info.block_bytes;
  const auto pack_panel = [&](int panel_index, int) {
    std::byte* panel = memory + panel_index * view.panel_bytes;
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
  return view;
}

}  // namespace deepinfer::kernels
