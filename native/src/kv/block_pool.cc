#include "kv/block_pool.h"

#include <algorithm>

#include "deepinfer/status.h"

namespace deepinfer {

uint64_t chain_hash(uint64_t parent_hash, std::span<const int32_t> tokens) {
  uint64_t h = parent_hash ^ 0x9E3779B97F4A7C15ull;
  for (const int32_t token : tokens) {
    h = (h ^ static_cast<uint32_t>(token)) * 0xD6E8FEB86659FD93ull;
    h ^= h >> 32;
  }
  h *= 0xD6E8FEB86659FD93ull;
  return h ^ (h >> 29);
}

BlockPool::BlockPool(int32_t num_blocks, int32_t block_tokens) : block_tokens_(block_tokens) {
  DI_CHECK(num_blocks >= 0 && block_tokens > 0);
  blocks_.resize(static_cast<size_t>(num_blocks));
  tokens_.resize(static_cast<size_t>(num_blocks) * static_cast<size_t>(block_tokens));
}

void BlockPool::link(int32_t block, bool at_front) {
  Block& b = blocks_[static_cast<size_t>(block)];
  b.previous = at_front ? -1 : last_free_;
  b.next = at_front ? first_free_ : -1;
  (b.previous < 0 ? first_free_ : blocks_[static_cast<size_t>(b.previous)].next) = block;
  (b.next < 0 ? last_free_ : blocks_[static_cast<size_t>(b.next)].previous) = block;
  ++num_listed_;
}

void BlockPool::unlink(int32_t block) {
  Block& b = blocks_[static_cast<size_t>(block)];
  (b.previous < 0 ? first_free_ : blocks_[static_cast<size_t>(b.previous)].next) = b.next;
  (b.next < 0 ? last_free_ : blocks_[static_cast<size_t>(b.next)].previous) = b.previous;
  b.previous = b.next = -1;
  --num_listed_;
}

int32_t BlockPool::take() {
  const bool is_empty = first_free_ >= 0 && blocks_[static_cast<size_t>(first_free_)].serial == kRoot;
  const int32_t num_used = num_touched_ - num_listed_;
  const bool may_grow = num_unused() > 0 && num_listed_ < std::max(num_used, num_blocks() / 8);
  if (first_free_ < 0 || (!is_empty && may_grow)) return num_touched_++;
  const int32_t block = first_free_;
  unlink(block);
  return block;
}

int32_t BlockPool::allocate() {
  DI_CHECK(num_free() > 0, "no free block");
  const int32_t block = take();
  Block& b = blocks_[static_cast<size_t>(block)];
  if (b.serial != kRoot) {
    index_.erase(b.hash);
    b.serial = kRoot;
  }
  b.references = 1;
  return block;
}

void BlockPool::share(int32_t block) {
  Block& b = blocks_[static_cast<size_t>(block)];
  if (b.references == 0) {
    DI_CHECK(b.serial != kRoot, "shared a free block without content");
    unlink(block);
  }
  ++b.references;
}

void BlockPool::release(int32_t block) {
  Block& b = blocks_[static_cast<size_t>(block)];
  DI_CHECK(b.references > 0, "released block ", block, " twice");
  if (--b.references == 0) link(block, b.serial == kRoot);
}

std::span<const int32_t> BlockPool::tokens_of(int32_t block) const {
  const size_t size = static_cast<size_t>(block_tokens_);
  return {tokens_.data() + static_cast<size_t>(block) * size, size};
}

int32_t BlockPool::find(uint64_t hash, uint64_t parent, std::span<const int32_t> tokens) const {
  const auto it = index_.find(hash);
  if (it == index_.end()) return -1;
  const int32_t block = it->second;
  if (blocks_[static_cast<size_t>(block)].parent != parent) return -1;
  return std::ranges::equal(tokens_of(block), tokens) ? block : -1;
}

void BlockPool::publish(int32_t block, uint64_t hash, uint64_t parent, std::span<const int32_t> tokens) {
  Block& b = blocks_[static_cast<size_t>(block)];
  DI_CHECK(b.references > 0 && b.serial == kRoot && std::ssize(tokens) == block_tokens_);
  const auto [it, is_new] = index_.emplace(hash, block);
  if (!is_new) {
    blocks_[static_cast<size_t>(it->second)].serial = kRoot;
    it->second = block;
  }
  b.hash = hash;
  b.parent = parent;
  b.serial = ++last_serial_;
  std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(block) * block_tokens_);
}

void BlockPool::check_integrity(std::span<const int32_t> expected_references) const {
  DI_CHECK(std::ssize(expected_references) == num_blocks());
  int32_t num_free = 0, num_indexed = 0;
  for (int32_t block = 0; block < num_blocks(); ++block) {
    const Block& b = blocks_[static_cast<size_t>(block)];
    const int32_t expected = expected_references[static_cast<size_t>(block)];
    DI_CHECK(b.references == expected, "block ", block, " has ", b.references,
             " references, its holders are ", expected);
    num_free += b.references == 0;
    if (b.serial == kRoot) continue;
    ++num_indexed;
    const auto it = index_.find(b.hash);
    DI_CHECK(it != index_.end() && it->second == block, "block ", block, " is lost from the index");
  }
  DI_CHECK(num_indexed == static_cast<int32_t>(index_.size()), num_indexed, " findable blocks, ",
           index_.size(), " in the index");
  DI_CHECK(num_free == this->num_free(), num_free, " blocks without references, ", this->num_free(),
           " counted as free");
  int32_t num_listed = 0;
  for (int32_t block = first_free_; block >= 0; block = blocks_[static_cast<size_t>(block)].next) {
    DI_CHECK(blocks_[static_cast<size_t>(block)].references == 0, "held block ", block, " in the free list");
    DI_CHECK(block < num_touched_, "unused block ", block, " in the free list");
    DI_CHECK(++num_listed <= num_listed_, "the free list is longer than ", num_listed_);
  }
  DI_CHECK(num_listed == num_listed_, num_listed, " blocks listed as free, ", num_listed_, " counted");
}

}  // namespace deepinfer
