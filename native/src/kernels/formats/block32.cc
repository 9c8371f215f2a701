// Formats with blocks of 32 elements. Scales are halves; nibble j of a block's bytes is element j (low half
// of the byte) or element j + 16 (high half), and the fifth bits of Q5 lie in one little-endian word.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_types.h"
#include "kernels/formats/formats.h"

namespace deepinfer::formats {
namespace {

constexpr int kElems = 32;

float load_half(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return f16_to_float(half);
}

// Stores `value` as a half and returns what was stored.
float store_half(float value, std::byte* at) {
  const uint16_t half = float_to_f16_saturating(value);
  std::memcpy(at, &half, sizeof half);
  return f16_to_float(half);
}

int nibble(const std::byte* nibbles, int j) {
  return j < 16 ? std::to_integer<int>(nibbles[j]) & 15 : std::to_integer<int>(nibbles[j - 16]) >> 4;
}

int fifth_bit(const std::byte* word, int j) {
  uint32_t bits;
  std::memcpy(&bits, word, sizeof bits);
  return static_cast<int>((bits >> j) & 1u);
}

void store_codes(const int* codes, std::byte* nibbles, std::byte* fifth_bits) {
  uint32_t high = 0;
  for (int j = 0; j < 16; ++j) {
    nibbles[j] = static_cast<std::byte>((codes[j] & 15) | ((codes[j + 16] & 15) << 4));
  }
  for (int j = 0; j < kElems; ++j) high |= static_cast<uint32_t>((codes[j] >> 4) & 1) << j;
  if (fifth_bits != nullptr) std::memcpy(fifth_bits, &high, sizeof high);
}

// Codes of value = d * (code - offset), the extreme value mapped to code 0 as its sign demands.
void symmetric_codes(const float* values, int offset, float d, int* codes) {
  for (int j = 0; j < kElems; ++j) {
    const float code =
        d != 0 ? std::nearbyint(values[j] / d) + static_cast<float>(offset) : static_cast<float>(offset);
    codes[j] = static_cast<int>(std::clamp(code, 0.0f, static_cast<float>(2 * offset - 1)));
  }
}

float signed_extreme(const float* values) {
  return *std::max_element(values, values + kElems,
                           [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

// Codes of value = d * code + m; writes d and m as halves.
void affine_codes(const float* values, int max_code, std::byte* d_at, std::byte* m_at, int* codes) {
  const auto [low, high] = std::minmax_element(values, values + kElems);
  const float d = store_half((*high - *low) / static_cast<float>(max_code), d_at);
  const float m = store_half(*low, m_at);
  for (int j = 0; j < kElems; ++j) {
    const float code = d != 0 ? std::nearbyint((values[j] - m) / d) : 0.0f;
    codes[j] = static_cast<int>(std::clamp(code, 0.0f, static_cast<float>(max_code)));
  }
}

}  // namespace

// Q4_0: d | 16 bytes of nibbles; value = d * (code - 8).
void dequantise_q4_0(const std::byte* block, float* values) {
  const float d = load_half(block);
  for (int j = 0; j < kElems; ++j) values[j] = d * static_cast<float>(nibble(block + 2, j) - 8);
}

void quantise_q4_0(const float* values, std::byte* block) {
  int codes[kElems];
  symmetric_codes(values, 8, store_half(signed_extreme(values) / -8.0f, block), codes);
  store_codes(codes, block + 2, nullptr);
}

// Q4_1: d | m | 16 bytes of nibbles; value = d * code + m.
void dequantise_q4_1(const std::byte* block, float* values) {
  const float d = load_half(block), m = load_half(block + 2);
  for (int j = 0; j < kElems; ++j) values[j] = d * static_cast<float>(nibble(block + 4, j)) + m;
}

void quantise_q4_1(const float* values, std::byte* block) {
  int codes[kElems];
  affine_codes(values, 15, block, block + 2, codes);
  store_codes(codes, block + 4, nullptr);
}

// Q5_0: d | 4 bytes of fifth bits | 16 bytes of nibbles; value = d * (code - 16).
void dequantise_q5_0(const std::byte* block, float* values) {
  const float d = load_half(block);
  for (int j = 0; j < kElems; ++j) {
    values[j] = d * static_cast<float>((nibble(block + 6, j) | (fifth_bit(block + 2, j) << 4)) - 16);
  }
}

void quantise_q5_0(const float* values, std::byte* block) {
  int codes[kElems];
  symmetric_codes(values, 16, store_half(signed_extreme(values) / -16.0f, block), codes);
  store_codes(codes, block + 6, block + 2);
}

// Q5_1: d | m | 4 bytes of fifth bits | 16 bytes of nibbles; value = d * code + m.
void dequantise_q5_1(const std::byte* block, float* values) {
  const float d = load_half(block), m = load_half(block + 2);
  for (int j = 0; j < kElems; ++j) {
    values[j] = d * static_cast<float>(nibble(block + 8, j) | (fifth_bit(block + 4, j) << 4)) + m;
  }
}

void quantise_q5_1(const float* values, std::byte* block) {
  int codes[kElems];
  affine_codes(values, 31, block, block + 2, codes);
  store_codes(codes, block + 8, block + 4);
}

// Q8_0: d | 32 signed bytes; value = d * code.
void dequantise_q8_0(const std::byte* block, float* values) {
  const float d = load_half(block);
  for (int j = 0; j < kElems; ++j) {
    values[j] = d * static_cast<float>(static_cast<int8_t>(block[2 + j]));
  }
}

void quantise_q8_0(const float* values, std::byte* block) {
  const float d = store_half(std::fabs(signed_extreme(values)) / 127.0f, block);
  for (int j = 0; j < kElems; ++j) {
    const float code = d != 0 ? std::clamp(std::nearbyint(values[j] / d), -127.0f, 127.0f) : 0.0f;
    block[2 + j] = static_cast<std::byte>(static_cast<int8_t>(code));
  }
}

}  // namespace deepinfer::formats
