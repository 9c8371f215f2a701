// Randomness without state: 64 uniform bits for (seed, sample, position, token).
//
// The high half is two rounds of multiply and xor-shift on 32 bits, cheap enough to compute for the whole
// vocabulary in vector registers; the low half is mixed separately, and only for tokens that may win.
#pragma once

#include <bit>
#include <cstdint>

#include "deepinfer/sampling.h"

namespace deepinfer {

inline uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

struct TokenNoise {
  explicit TokenNoise(const NoiseKey& key) {
    uint64_t k = mix64(key.seed + 0x9E3779B97F4A7C15ull);
    k = mix64(k ^ (static_cast<uint64_t>(static_cast<uint32_t>(key.sample)) * 0xD1B54A32D192ED03ull));
    k = mix64(k + static_cast<uint64_t>(static_cast<uint32_t>(key.position)) * 0x8CB92BA72F3D8DD7ull);
    add = static_cast<uint32_t>(k);
    flip = static_cast<uint32_t>(k >> 32);
  }

  uint32_t high(uint32_t token) const {
    uint32_t x = token * kSpread + add;
    x = (x ^ (x >> 15)) * kFirst;
    x ^= flip;  // between the rounds: rows with other keys are no shifted copies of each other
    x = (x ^ (x >> 13)) * kSecond;
    return x ^ (x >> 16);
  }
  uint64_t bits(uint32_t token) const {
    const uint64_t key = static_cast<uint64_t>(flip) << 32 | add;
    const uint64_t low = mix64(key + (token + 1) * 0xA0761D6478BD642Full) & 0xFFFFFFFFull;
    return static_cast<uint64_t>(high(token)) << 32 | low;
  }

  static constexpr uint32_t kSpread = 0x9E3779B1u, kFirst = 0x85EBCA77u, kSecond = 0xC2B2AE3Du;
  uint32_t add = 0, flip = 0;
};

// An upper bound of the Gumbel noise -log(-log(1 - v)) <= -log(v), from the high half of the bits of v alone:
// a float's bits read as an integer are its logarithm, too low by at most 0.087. The slack covers every
// rounding on the way.
inline constexpr float kBoundOffset = 158.0f * 0.693147182f + 1e-3f;  // 31 bits of v, exponent bias 127
inline constexpr float kBoundScale = -0.693147182f * 0x1p-23f;

inline float gumbel_bound(uint32_t high) {
  const float v = static_cast<float>(static_cast<int32_t>(high >> 1));
  return static_cast<float>(std::bit_cast<int32_t>(v)) * kBoundScale + kBoundOffset;
}

}  // namespace deepinfer
