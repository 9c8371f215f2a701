// Blocks of one cache group: reference counts, the list of free blocks, and the index of blocks that can
// be found by content. Numbers only; the memory belongs to the executor.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace deepinfer {

// Chains the content hash of a prefix with the tokens of its next block. Only a filter: a match is
// confirmed by comparing tokens and the identity of the parent block.
uint64_t chain_hash(uint64_t parent_hash, std::span<const int32_t> tokens);

class BlockPool {
 public:
  // Serial of "no block": the parent of a sequence's first block.
  static constexpr uint64_t kRoot = 0;

  BlockPool(int32_t num_blocks, int32_t block_tokens);

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_free() const { return num_listed_ + num_unused(); }
  int32_t num_touched() const { return num_touched_; }  // ever in use: what the memory behind them costs
  int32_t block_tokens() const { return block_tokens_; }

  // A block with one reference; its old content leaves the index. Needs num_free() > 0. In this order: a free
  // block without content; one never used, as long as the free ones with content are fewer than those in use
  // (or an eighth of all); the longest free. So memory grows with the work at hand, not to the whole pool:
  // first touches cost time, and most content of a batch job is never asked for again.
  int32_t allocate();
  // One more reference to a block that is held or free but findable.
  void share(int32_t block);
  // One reference less; a block without any becomes free. A findable one goes to the back of the list, so
  // that it is reused last; callers release a sequence from its end, so that leaves go before parents.
  void release(int32_t block);
  int32_t num_references(int32_t block) const { return blocks_[static_cast<size_t>(block)].references; }

  // The block that holds `tokens` after the prefix that ends in the block with serial `parent`; -1 if none.
  int32_t find(uint64_t hash, uint64_t parent, std::span<const int32_t> tokens) const;
  // Makes a fully computed block findable. Takes the place of a block with this hash that find() did not
  // accept: most likely the same content whose parent was reused and came back with another serial.
  void publish(int32_t block, uint64_t hash, uint64_t parent, std::span<const int32_t> tokens);
  // Identity of a findable block's content, kRoot when it is not findable. Never reused.
  uint64_t serial(int32_t block) const { return blocks_[static_cast<size_t>(block)].serial; }

  // Compares with references counted by the owner: [num_blocks]. Throws Error{kInternal} with the numbers.
  void check_integrity(std::span<const int32_t> expected_references) const;

 private:
  struct Block {
    int32_t references = 0;
    int32_t previous = -1, next = -1;  // in the free list, while references == 0
    uint64_t hash = 0;
    uint64_t serial = kRoot;  // != kRoot: in the index
    uint64_t parent = kRoot;
  };

  int32_t num_unused() const { return num_blocks() - num_touched_; }
  int32_t take();
  void link(int32_t block, bool at_front);
  void unlink(int32_t block);
  std::span<const int32_t> tokens_of(int32_t block) const;

  int32_t block_tokens_;
  int32_t num_touched_ = 0;  // blocks from here on were never used
  int32_t num_listed_ = 0;   // free ones that were
  int32_t first_free_ = -1, last_free_ = -1;
  uint64_t last_serial_ = kRoot;
  std::vector<Block> blocks_;                    // [num_blocks]
  std::vector<int32_t> tokens_;                  // [num_blocks, block_tokens] content of findable blocks
  std::unordered_map<uint64_t, int32_t> index_;  // chained hash -> block
};

}  // namespace deepinfer
