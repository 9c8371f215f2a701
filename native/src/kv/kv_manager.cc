#include "kv/kv_manager.h"

#include <algorithm>
#include <numeric>

#include "deepinfer/status.h"

namespace deepinfer {

KvManager::KvManager(std::vector<CacheGroupSpec> groups, std::span<const int32_t> num_blocks,
                     bool prefix_cache)
    : groups_(std::move(groups)), coming_(groups_.size()), prefix_cache_(prefix_cache) {
  DI_CHECK(groups_.size() == num_blocks.size(), groups_.size(), " cache groups, ", num_blocks.size(),
           " sizes");
  for (size_t g = 0; g < groups_.size(); ++g) {
    const bool is_paged = groups_[g].kind == CacheKind::kPaged;
    if (is_paged) unit_tokens_ = std::lcm(unit_tokens_, groups_[g].block_tokens);
    // The state of a per-sequence group after a prefix is gone once the sequence has moved on.
    prefix_cache_ = prefix_cache_ && is_paged;
    pools_.emplace_back(num_blocks[g], is_paged ? groups_[g].block_tokens : 1);
  }
}

int32_t KvManager::blocks_for(size_t group, int64_t num_tokens) const {
  if (groups_[group].kind == CacheKind::kSequence) return 1;
  const int64_t size = groups_[group].block_tokens;
  return static_cast<int32_t>((num_tokens + size - 1) / size);
}

int32_t KvManager::spare_blocks(size_t group, int32_t num_spare) const {
  return groups_[group].kind == CacheKind::kPaged ? num_spare : 0;  // the others do not grow
}

std::string KvManager::why_never(int64_t num_tokens) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int32_t needed = blocks_for(g, num_tokens);
    if (needed <= pools_[g].num_blocks()) continue;
    return str_cat("needs ", needed, " cache blocks of ", groups_[g].block_tokens, " tokens for ", num_tokens,
                   " tokens, and the whole cache has ", pools_[g].num_blocks());
  }
  return "";
}

void KvManager::extend_hashes(SequenceBlocks& held, std::span<const int32_t> tokens) const {
  held.hashes.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t size = static_cast<size_t>(groups_[g].block_tokens);
    std::vector<uint64_t>& hashes = held.hashes[g];
    for (size_t i = hashes.size(); (i + 1) * size <= tokens.size(); ++i)
      hashes.push_back(chain_hash(i == 0 ? 0 : hashes[i - 1], tokens.subspan(i * size, size)));
  }
}

int32_t KvManager::match_prefix(SequenceBlocks& held, std::span<const int32_t> tokens, int32_t max_cached,
                                std::vector<std::vector<int32_t>>& found) const {
  found.assign(groups_.size(), {});
  if (!prefix_cache_ || max_cached < unit_tokens_) return 0;
  extend_hashes(held, tokens);
  int32_t num_matched = std::min(max_cached, static_cast<int32_t>(tokens.size()));
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int32_t size = groups_[g].block_tokens;
    uint64_t parent = BlockPool::kRoot;
    while ((std::ssize(found[g]) + 1) * size <= num_matched) {
      const size_t i = found[g].size();
      const int32_t block =
          pools_[g].find(held.hashes[g][i], parent,
                         tokens.subspan(i * static_cast<size_t>(size), static_cast<size_t>(size)));
      if (block < 0) break;
      found[g].push_back(block);
      parent = pools_[g].serial(block);
    }
    num_matched = std::min(num_matched, static_cast<int32_t>(std::ssize(found[g])) * size);
  }
  num_matched -= num_matched % unit_tokens_;
  for (size_t g = 0; g < groups_.size(); ++g)
    found[g].resize(static_cast<size_t>(num_matched / groups_[g].block_tokens));
  return num_matched;
}

int32_t KvManager::admit(SequenceBlocks& held, std::span<const int32_t> tokens, int32_t num_tokens,
                         int32_t max_cached, int32_t num_spare) {
  DI_CHECK(held.groups.empty(), "admitted twice");
  std::vector<std::vector<int32_t>> found;
  const int32_t num_cached = match_prefix(held, tokens, max_cached, found);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto is_free = [&](int32_t block) { return pools_[g].num_references(block) == 0; };
    const int64_t num_revived = std::ranges::count_if(found[g], is_free);
    const int64_t num_new = blocks_for(g, num_tokens) - std::ssize(found[g]);
    if (num_revived + num_new + spare_blocks(g, num_spare) > pools_[g].num_free()) return -1;
  }
  held.groups.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    SequenceBlocks::Group& group = held.groups[g];
    for (const int32_t block : found[g]) pools_[g].share(block);
    group.num_published = static_cast<int32_t>(found[g].size());
    if (!found[g].empty()) group.last_serial = pools_[g].serial(found[g].back());
    group.blocks = std::move(found[g]);
  }
  DI_CHECK(grow(held, num_tokens), "room was counted before");
  announce(held, tokens);
  return num_cached;
}

void KvManager::announce(SequenceBlocks& held, std::span<const int32_t> tokens) {
  if (!prefix_cache_) return;
  extend_hashes(held, tokens);
  for (size_t g = 0; g < groups_.size(); ++g) {
    SequenceBlocks::Group& group = held.groups[g];
    group.num_announced = static_cast<int32_t>(std::min(held.hashes[g].size(), group.blocks.size()));
    for (int32_t i = group.num_published; i < group.num_announced; ++i)
      ++coming_[g][held.hashes[g][static_cast<size_t>(i)]];
  }
}

void KvManager::forget(size_t group, uint64_t hash) {
  const auto it = coming_[group].find(hash);
  DI_CHECK(it != coming_[group].end(), "a block was never announced");
  if (--it->second == 0) coming_[group].erase(it);
}

bool KvManager::is_prefix_coming(SequenceBlocks& held, std::span<const int32_t> tokens,
                                 int32_t max_cached) const {
  std::vector<std::vector<int32_t>> found;
  const int32_t num_cached = match_prefix(held, tokens, max_cached, found);
  if (!prefix_cache_ || num_cached + unit_tokens_ > std::min(max_cached, static_cast<int32_t>(tokens.size())))
    return false;
  for (size_t g = 0; g < groups_.size(); ++g)
    if (!coming_[g].contains(held.hashes[g][static_cast<size_t>(num_cached / groups_[g].block_tokens)]))
      return false;
  return true;
}

bool KvManager::grow(SequenceBlocks& held, int32_t num_tokens) {
  for (size_t g = 0; g < groups_.size(); ++g)
    if (blocks_for(g, num_tokens) - std::ssize(held.groups[g].blocks) > pools_[g].num_free()) return false;
  for (size_t g = 0; g < groups_.size(); ++g)
    while (std::ssize(held.groups[g].blocks) < blocks_for(g, num_tokens))
      held.groups[g].blocks.push_back(pools_[g].allocate());
  return true;
}

void KvManager::publish(SequenceBlocks& held, std::span<const int32_t> tokens, int32_t num_computed) {
  if (!prefix_cache_) return;
  extend_hashes(held, tokens);
  for (size_t g = 0; g < groups_.size(); ++g) {
    SequenceBlocks::Group& group = held.groups[g];
    const size_t size = static_cast<size_t>(groups_[g].block_tokens);
    while ((static_cast<size_t>(group.num_published) + 1) * size <= static_cast<size_t>(num_computed)) {
      const size_t i = static_cast<size_t>(group.num_published++);
      const std::span<const int32_t> content = tokens.subspan(i * size, size);
      int32_t& block = group.blocks[i];
      const int32_t twin = pools_[g].find(held.hashes[g][i], group.last_serial, content);
      if (twin < 0) {
        pools_[g].publish(block, held.hashes[g][i], group.last_serial, content);
      } else if (twin != block) {
        pools_[g].share(twin);
        pools_[g].release(std::exchange(block, twin));
      }
      group.last_serial = pools_[g].serial(block);
      if (static_cast<int32_t>(i) < group.num_announced) forget(g, held.hashes[g][i]);
    }
  }
}

bool KvManager::fork(const SequenceBlocks& parent, SequenceBlocks& child, int32_t num_computed,
                     int32_t num_spare, std::vector<BlockCopy>& copies) {
  DI_CHECK(child.groups.empty(), "forked into a sequence that holds blocks");
  const auto num_shared = [&](size_t g) {
    return groups_[g].kind == CacheKind::kSequence ? 0 : num_computed / groups_[g].block_tokens;
  };
  for (size_t g = 0; g < groups_.size(); ++g)
    if (blocks_for(g, num_computed) - num_shared(g) + spare_blocks(g, num_spare) > pools_[g].num_free())
      return false;
  child = parent;
  for (size_t g = 0; g < groups_.size(); ++g) {
    SequenceBlocks::Group& group = child.groups[g];
    group.blocks.resize(static_cast<size_t>(blocks_for(g, num_computed)));
    group.num_announced = 0;  // the parent's are its own
    for (size_t i = 0; i < group.blocks.size(); ++i) {
      if (static_cast<int32_t>(i) < num_shared(g)) {
        pools_[g].share(group.blocks[i]);
        continue;
      }
      const int32_t source = std::exchange(group.blocks[i], pools_[g].allocate());
      copies.push_back({static_cast<int32_t>(g), source, group.blocks[i]});
    }
  }
  return true;
}

void KvManager::release(SequenceBlocks& held) {
  for (size_t g = 0; g < held.groups.size(); ++g) {
    const SequenceBlocks::Group& group = held.groups[g];
    for (int32_t i = group.num_published; i < group.num_announced; ++i)
      forget(g, held.hashes[g][static_cast<size_t>(i)]);
    std::vector<int32_t>& blocks = held.groups[g].blocks;
    for (; !blocks.empty(); blocks.pop_back()) pools_[g].release(blocks.back());
  }
  held.groups.clear();
}

int64_t KvManager::num_blocks_total() const {
  int64_t total = 0;
  for (const BlockPool& pool : pools_) total += pool.num_blocks();
  return total;
}

int64_t KvManager::num_blocks_used() const {
  int64_t used = 0;
  for (const BlockPool& pool : pools_) used += pool.num_blocks() - pool.num_free();
  return used;
}

void KvManager::check_integrity(std::span<const SequenceBlocks* const> holders) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<int32_t> references(static_cast<size_t>(pools_[g].num_blocks()), 0);
    for (const SequenceBlocks* holder : holders) {
      if (holder->groups.empty()) continue;
      for (const int32_t block : holder->groups[g].blocks) ++references.at(static_cast<size_t>(block));
    }
    pools_[g].check_integrity(references);
    int64_t num_announced = 0, num_coming = 0;
    for (const SequenceBlocks* holder : holders)
      if (!holder->groups.empty())
        num_announced += std::max(0, holder->groups[g].num_announced - holder->groups[g].num_published);
    for (const auto& [hash, count] : coming_[g]) num_coming += count;
    DI_CHECK(num_announced == num_coming, num_announced, " blocks announced, ", num_coming, " expected");
  }
}

}  // namespace deepinfer
