// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein): a keyed hash that strangers cannot aim at.
#pragma once

#include <cstdint>
#include <string_view>

namespace deepinfer {

struct Hash128 {
  uint64_t hi = 0;
  uint64_t lo = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

Hash128 siphash128(const uint64_t key[2], std::string_view bytes);

}  // namespace deepinfer
