// Block tables of sequences over all cache groups of a model: admission with prefix sharing, growth,
// forks and release. Plain numbers; whoever calls it decides who waits and who is preempted.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "deepinfer/kv_cache.h"
#include "kv/block_pool.h"

namespace deepinfer {

// What one sequence holds. Empty until admitted and again after release.
struct SequenceBlocks {
  struct Group {
    std::vector<int32_t> blocks;              // block table, in token order
    int32_t num_published = 0;                // leading blocks that were offered to the prefix index
    uint64_t last_serial = BlockPool::kRoot;  // content identity of the last of them
    int32_t num_announced = 0;  // leading blocks that others may wait for until they are published
  };
  std::vector<Group> groups;                  // [num groups] while admitted
  std::vector<std::vector<uint64_t>> hashes;  // [num groups][full blocks] chained, kept over preemptions
};

// One block copy that an executor has to make: (source, destination) in a group.
struct BlockCopy {
  int32_t group = 0;
  int32_t source = 0;
  int32_t destination = 0;
};

class KvManager {
 public:
  KvManager(std::vector<CacheGroupSpec> groups, std::span<const int32_t> num_blocks, bool prefix_cache);

  // Empty when a lone sequence of `num_tokens` fits; else one sentence with what it needs and what is there.
  std::string why_never(int64_t num_tokens) const;

  // Blocks for a sequence that holds none: shares at most `max_cached` leading tokens with what is cached and
  // covers `num_tokens` tokens in all, leaving `num_spare` blocks free in every paged group. Returns the
  // number of tokens found in the cache, or -1 (and changes nothing) when there is no room.
  int32_t admit(SequenceBlocks& held, std::span<const int32_t> tokens, int32_t num_tokens, int32_t max_cached,
                int32_t num_spare);
  // True when a running sequence is about to compute the next block that this one could share: it is cheaper
  // to wait for it than to compute it twice.
  bool is_prefix_coming(SequenceBlocks& held, std::span<const int32_t> tokens, int32_t max_cached) const;
  // Covers `num_tokens` tokens; false (and changes nothing) when there is no room.
  bool grow(SequenceBlocks& held, int32_t num_tokens);
  // Offers the blocks that `num_computed` tokens fill to the prefix index. A block whose content is already
  // there is exchanged for the one found: equal tokens have equal bits in this engine.
  void publish(SequenceBlocks& held, std::span<const int32_t> tokens, int32_t num_computed);
  // Makes `child` (empty) a copy of `parent` after `num_computed` tokens: full blocks are shared, partial
  // and per-sequence ones are new and appended to `copies`. False (and no change) when there is no room.
  bool fork(const SequenceBlocks& parent, SequenceBlocks& child, int32_t num_computed, int32_t num_spare,
            std::vector<BlockCopy>& copies);
  void release(SequenceBlocks& held);

  const std::vector<CacheGroupSpec>& groups() const { return groups_; }
  int64_t num_blocks_total() const;
  int64_t num_blocks_used() const;

  // Recounts the references of every block. `holders`: all sequences that may hold blocks.
  void check_integrity(std::span<const SequenceBlocks* const> holders) const;

 private:
  int32_t blocks_for(size_t group, int64_t num_tokens) const;
  int32_t spare_blocks(size_t group, int32_t num_spare) const;
  void extend_hashes(SequenceBlocks& held, std::span<const int32_t> tokens) const;
  // Blocks found for the longest cached prefix of at most `max_cached` tokens, cut to a border that all
  // groups share.
  int32_t match_prefix(SequenceBlocks& held, std::span<const int32_t> tokens, int32_t max_cached,
                       std::vector<std::vector<int32_t>>& found) const;

  void announce(SequenceBlocks& held, std::span<const int32_t> tokens);
  void forget(size_t group, uint64_t hash);

  std::vector<CacheGroupSpec> groups_;
  std::vector<BlockPool> pools_;                               // [num groups]
  std::vector<std::unordered_map<uint64_t, int32_t>> coming_;  // [num groups] chained hash -> announcers
  bool prefix_cache_;                                          // off when a group cannot be shared by content
  int32_t unit_tokens_ = 1;                                    // common border of all paged groups, in tokens
};

}  // namespace deepinfer
