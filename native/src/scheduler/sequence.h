// What the scheduler knows of one sequence: how many tokens it has, how many are computed, which blocks
// it holds. Prefill, decode, recomputation and verification differ in nothing else.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <vector>

#include "kv/kv_manager.h"

namespace deepinfer {

// Age: requests in the order of arrival, samples of a request in order. Smaller is older.
struct SequenceOrder {
  uint64_t request = 0;
  int32_t sample = 0;
  auto operator<=>(const SequenceOrder&) const = default;
};

struct Sequence {
  enum class State : uint8_t { kNew, kWaiting, kRunning, kFinished };

  SequenceOrder order;
  std::vector<int32_t> tokens;  // prompt, then output; may be empty while it waits, see TokenStore
  int32_t num_wanted = 0;       // tokens to compute: all of them, or fewer when only scores are asked
  int32_t max_cached = std::numeric_limits<int32_t>::max();  // most tokens that may be skipped at admission

  bool is_held = false;  // not computed now; keeps its place and, unless somebody needs them, its blocks

  // The scheduler's own.
  State state = State::kNew;
  int32_t num_computed = 0;   // leading tokens whose cache entries exist
  int32_t num_scheduled = 0;  // tokens to compute in this step
  int32_t num_cached = -1;    // found in the cache at first admission; -1 = never admitted
  int32_t num_preemptions = 0;
  SequenceBlocks blocks;

  int32_t num_remaining() const { return num_wanted - num_computed; }
};

// Thousands of samples of one long prompt may wait, and each would hold a copy of it: their tokens are put
// together when they may run, and dropped when they go back.
class TokenStore {
 public:
  virtual ~TokenStore() = default;
  virtual void load(Sequence& sequence) = 0;
  virtual void unload(Sequence& sequence) = 0;
};

}  // namespace deepinfer
