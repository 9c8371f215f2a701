#include "text/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace deepinfer {
namespace {

// Up to here rescanning all ranks for each merge is faster than a heap; words of prose are far shorter.
constexpr size_t kShortSymbols = 64;

}  // namespace

BpeMerges::BpeMerges(size_t num_merges) : slots_(std::bit_ceil(2 * num_merges + 2)) {}

// Where the pair is, or the empty slot where it would be.
size_t BpeMerges::slot_of(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  uint64_t h = pair * 0x9e3779b97f4a7c15ull;
  size_t at = static_cast<size_t>(h ^ h >> 32) & mask;
  while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & mask;
  return at;
}

void BpeMerges::add(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = pack(left, right);
  slots_[slot_of(pair)] = {pair, merge};
}

BpeMerges::Merge BpeMerges::find(int32_t left, int32_t right) const {
  return slots_[slot_of(pack(left, right))].merge;
}

void BpeMerges::apply(std::vector<int32_t>& symbols) const {
  if (symbols.size() < 2) return;
  symbols.size() <= kShortSymbols ? apply_short(symbols) : apply_long(symbols);
}

void BpeMerges::apply_short(std::vector<int32_t>& symbols) const {
  Merge merges[kShortSymbols];  // merges[i]: of symbols i and i + 1
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNone) break;
    symbols[best] = merges[best].token;
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(best) + 2,
              symbols.begin() + static_cast<ptrdiff_t>(count),
              symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(merges + best + 1, merges + count - 1, merges + best);
    --count;
    if (best > 0) merges[best - 1] = find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) merges[best] = find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

// A heap of candidate merges over a linked list of symbols. A candidate whose pair has changed since is
// recognised by its result: symbols only grow, so no other pair at that place makes the same token.
void BpeMerges::apply_long(std::vector<int32_t>& symbols) const {
  struct Candidate {
    uint32_t rank;
    uint32_t at;
    int32_t token;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  constexpr uint32_t kEnd = UINT32_MAX;
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(count), previous(count);
  std::vector<bool> gone(count, false);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto consider = [&](uint32_t at) {
    if (at == kEnd || next[at] == kEnd) return;
    const Merge merge = find(symbols[at], symbols[next[at]]);
    if (merge.rank != kNone) heap.push({merge.rank, at, merge.token});
  };
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
  }
  for (uint32_t i = 0; i < count; ++i) consider(i);
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    if (gone[top.at] || next[top.at] == kEnd) continue;
    const uint32_t right = next[top.at];
    if (find(symbols[top.at], symbols[right]).token != top.token) continue;
    symbols[top.at] = top.token;
    gone[right] = true;
    next[top.at] = next[right];
    if (next[right] != kEnd) previous[next[right]] = top.at;
    consider(previous[top.at]);
    consider(top.at);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != kEnd; i = next[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace deepinfer
