// One stored key of an IdTable: 21 bytes, the same in memory and in spill files (which never outlive the
// process, so native byte order will do).
#pragma once

#include <cstdint>
#include <cstring>

#include "rows/siphash.h"

namespace deepinfer {

__extension__ typedef unsigned __int128 uint128;

struct IdEntry {
  static constexpr size_t kBytes = 21;  // hash 16, value + 1 in 5; all zero = empty slot
  static constexpr size_t kValueOffset = 16;

  static Hash128 hash(const unsigned char* entry) {
    Hash128 h;
    std::memcpy(&h.hi, entry, 8);
    std::memcpy(&h.lo, entry + 8, 8);
    return h;
  }
  // 0 = the slot is empty.
  static uint64_t stored(const unsigned char* entry) {
    uint32_t low;
    std::memcpy(&low, entry + kValueOffset, 4);
    return low | uint64_t{entry[kValueOffset + 4]} << 32;
  }
  static void store_value(unsigned char* value_bytes, uint64_t stored) {
    const auto low = static_cast<uint32_t>(stored);
    std::memcpy(value_bytes, &low, 4);
    value_bytes[4] = static_cast<unsigned char>(stored >> 32);
  }
  static void store(unsigned char* entry, const Hash128& h, uint64_t stored) {
    std::memcpy(entry, &h.hi, 8);
    std::memcpy(entry + 8, &h.lo, 8);
    store_value(entry + kValueOffset, stored);
  }
};

// Where a hash would lie if `size` entries were spread evenly over all hashes; monotone in the hash.
inline uint64_t scaled_position(const Hash128& h, uint64_t size) {
  return static_cast<uint64_t>((uint128{h.hi} * size) >> 64);
}

}  // namespace deepinfer
