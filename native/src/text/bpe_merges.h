// The merge table of a BPE vocabulary and the merging of one word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace deepinfer {

class BpeMerges {
 public:
  struct Merge {
    uint32_t rank = kNone;  // lower merges first
    int32_t token = -1;     // what the pair becomes
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit BpeMerges(size_t num_merges);
  void add(int32_t left, int32_t right, Merge merge);  // a pair that is there already takes the new merge
  Merge find(int32_t left, int32_t right) const;       // rank kNone when they do not merge

  // Merges neighbours, always the lowest rank and of equal ranks the leftmost, until none merge.
  void apply(std::vector<int32_t>& symbols) const;

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;
  static uint64_t pack(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t pair) const;
  void apply_short(std::vector<int32_t>& symbols) const;
  void apply_long(std::vector<int32_t>& symbols) const;

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

}  // namespace deepinfer
