// Formats with super-blocks of 256 elements ("K-quants"): sub-blocks whose scales are small integers times
// one half per super-block. d * scale is exact in fp32, which the packed layouts rely on.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_types.h"
#include "kernels/formats/formats.h"

namespace deepinfer::formats {
namespace {

constexpr int kElems = 256;

// Byte offsets inside a block.
constexpr int kScales45 = 4;   // Q4_K, Q5_K: d | dmin | 12 bytes of scales and minima
constexpr int kCodes4 = 16;    // Q4_K: 128 bytes of nibbles
constexpr int kHigh5 = 16;     // Q5_K: 32 bytes of fifth bits
constexpr int kCodes5 = 48;    // Q5_K: 128 bytes of nibbles
constexpr int kHigh6 = 128;    // Q6_K: 128 bytes of low nibbles | 64 bytes of high bit pairs
constexpr int kScales6 = 192;  // Q6_K: 16 signed scales
constexpr int kD6 = 208;       // Q6_K: d

float load_half(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return f16_to_float(half);
}

float store_half(float value, std::byte* at) {
  const uint16_t half = float_to_f16_saturating(value);
  std::memcpy(at, &half, sizeof half);
  return f16_to_float(half);
}

int byte_at(const std::byte* at, int index) { return std::to_integer<int>(at[index]); }

void or_into(std::byte* at, int value) { *at |= static_cast<std::byte>(value); }

void pack_scale_min(uint8_t* packed, int index, int scale, int minimum) {
  if (index < 4) {
    packed[index] = static_cast<uint8_t>(packed[index] | scale);
    packed[index + 4] = static_cast<uint8_t>(packed[index + 4] | minimum);
  } else {
    packed[index + 4] = static_cast<uint8_t>((scale & 15) | ((minimum & 15) << 4));
    packed[index - 4] = static_cast<uint8_t>(packed[index - 4] | ((scale >> 4) << 6));
    packed[index] = static_cast<uint8_t>(packed[index] | ((minimum >> 4) << 6));
  }
}

// Q4_K and Q5_K share everything but the fifth bits. Element e of sub-block s: byte (s / 2) * 32 + e of the
// nibbles, low half for even s; fifth bit: bit s of byte e.
void dequantise_45(const std::byte* block, const std::byte* nibbles, const std::byte* fifth_bits,
                   float* values) {
  const float d = load_half(block), dmin = load_half(block + 2);
  const auto* scales = reinterpret_cast<const uint8_t*>(block + kScales45);
  for (int s = 0; s < 8; ++s) {
    uint8_t scale, minimum;
    unpack_scale_min(scales, s, &scale, &minimum);
    const float step = d * static_cast<float>(scale), base = dmin * static_cast<float>(minimum);
    for (int e = 0; e < 32; ++e) {
      int code = (byte_at(nibbles, (s / 2) * 32 + e) >> (4 * (s % 2))) & 15;
      if (fifth_bits != nullptr) code |= ((byte_at(fifth_bits, e) >> s) & 1) << 4;
      values[s * 32 + e] = step * static_cast<float>(code) - base;
    }
  }
}

void quantise_45(const float* values, int max_code, int block_bytes, std::byte* block, std::byte* nibbles,
                 std::byte* fifth_bits) {
  std::memset(block, 0, static_cast<size_t>(block_bytes));
  float steps[8], bases[8];
  float max_step = 0, max_base = 0;
  for (int s = 0; s < 8; ++s) {
    const auto [low, high] = std::minmax_element(values + s * 32, values + s * 32 + 32);
    bases[s] = std::max(0.0f, -*low);
    steps[s] = std::max(0.0f, *high + bases[s]) / static_cast<float>(max_code);
    max_step = std::max(max_step, steps[s]);
    max_base = std::max(max_base, bases[s]);
  }
  const float d = store_half(max_step / 63.0f, block), dmin = store_half(max_base / 63.0f, block + 2);
  for (int s = 0; s < 8; ++s) {
    const auto code6 = [](float value, float unit) {
      return unit != 0 ? static_cast<int>(std::clamp(std::nearbyint(value / unit), 0.0f, 63.0f)) : 0;
    };
    const int scale = code6(steps[s], d), minimum = code6(bases[s], dmin);
    pack_scale_min(reinterpret_cast<uint8_t*>(block + kScales45), s, scale, minimum);
    const float step = d * static_cast<float>(scale), base = dmin * static_cast<float>(minimum);
    for (int e = 0; e < 32; ++e) {
      const float real = step != 0 ? std::nearbyint((values[s * 32 + e] + base) / step) : 0.0f;
      const int code = static_cast<int>(std::clamp(real, 0.0f, static_cast<float>(max_code)));
      or_into(nibbles + (s / 2) * 32 + e, (code & 15) << (4 * (s % 2)));
      if (fifth_bits != nullptr) or_into(fifth_bits + e, (code >> 4) << s);
    }
  }
}

// Q6_K: where element i keeps its low four and its high two bits.
struct Place6 {
  int low_byte, low_shift, high_byte, high_shift;
};
Place6 place6(int i) {
  const int half = i / 128, quarter = (i % 128) / 32, e = i % 32;
  return {half * 64 + (quarter % 2) * 32 + e, 4 * (quarter / 2), half * 32 + e, 2 * quarter};
}

}  // namespace

void unpack_scale_min(const uint8_t* packed, int index, uint8_t* scale, uint8_t* minimum) {
  if (index < 4) {
    *scale = packed[index] & 63;
    *minimum = packed[index + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((packed[index + 4] & 15) | ((packed[index - 4] >> 6) << 4));
    *minimum = static_cast<uint8_t>((packed[index + 4] >> 4) | ((packed[index] >> 6) << 4));
  }
}

void dequantise_q4_k(const std::byte* block, float* values) {
  dequantise_45(block, block + kCodes4, nullptr, values);
}
void dequantise_q5_k(const std::byte* block, float* values) {
  dequantise_45(block, block + kCodes5, block + kHigh5, values);
}
void quantise_q4_k(const float* values, std::byte* block) {
  quantise_45(values, 15, dtype_info(DType::kQ4_K).block_bytes, block, block + kCodes4, nullptr);
}
void quantise_q5_k(const float* values, std::byte* block) {
  quantise_45(values, 31, dtype_info(DType::kQ5_K).block_bytes, block, block + kCodes5, block + kHigh5);
}

// Q6_K: value = d * scale[i / 16] * (code - 32).
void dequantise_q6_k(const std::byte* block, float* values) {
  const float d = load_half(block + kD6);
  for (int i = 0; i < kElems; ++i) {
    const Place6 at = place6(i);
    const int low = (byte_at(block, at.low_byte) >> at.low_shift) & 15;
    const int high = (byte_at(block + kHigh6, at.high_byte) >> at.high_shift) & 3;
    const int scale = static_cast<int8_t>(block[kScales6 + i / 16]);
    values[i] = d * static_cast<float>(scale) * static_cast<float>((low | (high << 4)) - 32);
  }
}

void quantise_q6_k(const float* values, std::byte* block) {
  std::memset(block, 0, static_cast<size_t>(dtype_info(DType::kQ6_K).block_bytes));
  float steps[16];
  float max_step = 0;
  for (int s = 0; s < 16; ++s) {
    float extreme = 0;
    for (int e = 0; e < 16; ++e) {
      if (std::fabs(values[s * 16 + e]) > std::fabs(extreme)) extreme = values[s * 16 + e];
    }
    steps[s] = extreme / -32.0f;
    max_step = std::max(max_step, std::fabs(steps[s]));
  }
  const float d = store_half(max_step / 127.0f, block + kD6);
  for (int i = 0; i < kElems; ++i) {
    const int scale =
        d != 0 ? static_cast<int>(std::clamp(std::nearbyint(steps[i / 16] / d), -127.0f, 127.0f)) : 0;
    block[kScales6 + i / 16] = static_cast<std::byte>(static_cast<int8_t>(scale));
    const float step = d * static_cast<float>(scale);
    const float real = step != 0 ? std::nearbyint(values[i] / step) + 32.0f : 32.0f;
    const int code = static_cast<int>(std::clamp(real, 0.0f, 63.0f));
    const Place6 at = place6(i);
    or_into(block + at.low_byte, (code & 15) << at.low_shift);
    or_into(block + kHigh6 + at.high_byte, (code >> 4) << at.high_shift);
  }
}

}  // namespace deepinfer::formats
