#include "rows/siphash.h"

#include <bit>
#include <cstring>

namespace deepinfer {
namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1;
      v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  }
  void absorb(uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
};

uint64_t load_little(const char* bytes, size_t count) {
  uint64_t word = 0;
  for (size_t i = 0; i < count; ++i) word |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return word;
}

}  // namespace

Hash128 siphash128(const uint64_t key[2], std::string_view bytes) {
  State s{key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull ^ 0xee,
          key[0] ^ 0x6c7967656e657261ull, key[1] ^ 0x7465646279746573ull};
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) s.absorb(load_little(bytes.data() + i, 8));
  s.absorb(load_little(bytes.data() + i, bytes.size() - i) | uint64_t{bytes.size()} << 56);
  s.v2 ^= 0xee;
  s.rounds(4);
  const uint64_t first = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
  s.v1 ^= 0xdd;
  s.rounds(4);
  return {s.v0 ^ s.v1 ^ s.v2 ^ s.v3, first};
}

}  // namespace deepinfer
