// What the scheduler knows of one sequence: how many tokens it has, how many are computed, which blocks
// it holds. Prefill, decode, recomputation and verification differ in nothing else.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <vector>

#include "kv/kv_manager.h"

namespace deepinfer {

// Who goes first: by rank, then requests in the order of arrival, samples of a request in order. What is
// smaller is called older.
struct SequenceOrder {
  uint64_t rank = 0;  // see rank_of()
  uint64_t request = 0;
  int32_t sample = 0;
  auto operator<=>(const SequenceOrder&) const = default;
};

// Requests that arrive one after the other form groups of `look_ahead`; inside a group the one that takes the
// most steps goes first, so that the last to run are short and not alone for long. Nobody is passed by more
// than the others of his group. look_ahead: 1 = the order of arrival.
uint64_t rank_of(uint64_t arrival, int64_t num_steps, int32_t look_ahead);

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
