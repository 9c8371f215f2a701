// Runs whole token sequences through an executor in any cut: how many at once, in chunks of what size, with
// which block ids. Returns the logits of every position.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "deepinfer/executor.h"

namespace deepinfer::testing {

using Sequence = std::vector<int32_t>;
using Logits = std::vector<float>;  // [tokens, vocab_size] of one sequence

struct Cut {
  int batch = 1;              // sequences running together
  int chunk = 1 << 20;        // tokens of each per step
  uint32_t shuffle_seed = 0;  // order of block ids
};

class Collector final : public LogitsSink {
 public:
  Collector(int vocab_size, std::vector<Logits*> rows) : vocab_size_(vocab_size), rows_(std::move(rows)) {}
  void consume(int first_row, int num_rows, const float* logits) override {
    for (int r = 0; r < num_rows; ++r) {
      Logits& to = *rows_[static_cast<size_t>(first_row + r)];
      to.insert(to.end(), logits + int64_t{r} * vocab_size_, logits + int64_t{r + 1} * vocab_size_);
    }
  }

 private:
  int vocab_size_;
  std::vector<Logits*> rows_;  // where each logits row goes
};

// One step: the next tokens of sequences [begin, end), each from its own position done[s].
inline void run_step(Executor& executor, const std::vector<Sequence>& sequences,
                     const std::vector<std::vector<int32_t>>& blocks, size_t begin, size_t end, int chunk,
                     std::vector<int>& done, std::vector<Logits>& results) {
  Batch batch;
  BlockTables tables;
  tables.offsets.push_back(0);
  std::vector<Logits*> rows;
  for (size_t s = begin; s < end; ++s) {
    const int left = static_cast<int>(sequences[s].size()) - done[s], count = std::min(chunk, left);
    if (count == 0) continue;
    const auto index = static_cast<int32_t>(batch.sequences.size());
    batch.sequences.push_back({batch.num_tokens(), count, done[s]});
    for (int i = 0; i < count; ++i) {
      batch.logit_tokens.push_back(batch.num_tokens());
      batch.tokens.push_back(sequences[s][static_cast<size_t>(done[s] + i)]);
      batch.positions.push_back(done[s] + i);
      batch.token_sequences.push_back(index);
      rows.push_back(&results[s]);
    }
    tables.blocks.insert(tables.blocks.end(), blocks[s].begin(), blocks[s].end());
    tables.offsets.push_back(static_cast<int32_t>(tables.blocks.size()));
    done[s] += count;
  }
  batch.groups.push_back(tables);
  Collector sink(executor.info().vocab_size, rows);
  executor.forward(batch, sink);
}

// The executor must be fresh: this allocates its cache.
inline std::vector<Logits> run_sequences(Executor& executor, const std::vector<Sequence>& sequences,
                                         const Cut& cut) {
  const int block_tokens = executor.cache_groups()[0].block_tokens;
  int total_blocks = 0;
  size_t total_tokens = 0;
  for (const Sequence& sequence : sequences) {
    total_blocks += (static_cast<int>(sequence.size()) + block_tokens - 1) / block_tokens;
    total_tokens += sequence.size();
  }
  const int32_t num_blocks[] = {total_blocks};
  executor.allocate_cache(num_blocks);
  executor.reserve(static_cast<int32_t>(total_tokens));
  std::vector<int32_t> ids(static_cast<size_t>(total_blocks));
  std::iota(ids.begin(), ids.end(), 0);
  std::mt19937 rng(cut.shuffle_seed);
  if (cut.shuffle_seed != 0) std::shuffle(ids.begin(), ids.end(), rng);
  std::vector<std::vector<int32_t>> blocks;
  size_t next = 0;
  for (const Sequence& sequence : sequences) {
    const size_t count =
        (sequence.size() + static_cast<size_t>(block_tokens) - 1) / static_cast<size_t>(block_tokens);
    blocks.emplace_back(ids.begin() + static_cast<int64_t>(next),
                        ids.begin() + static_cast<int64_t>(next + count));
    next += count;
  }
  std::vector<int> done(sequences.size());
  std::vector<Logits> results(sequences.size());
  for (size_t begin = 0; begin < sequences.size(); begin += static_cast<size_t>(cut.batch)) {
    const size_t end = std::min(sequences.size(), begin + static_cast<size_t>(cut.batch));
    const auto unfinished = [&] {
      for (size_t s = begin; s < end; ++s) {
        if (done[s] < static_cast<int>(sequences[s].size())) return true;
      }
      return false;
    };
    while (unfinished()) run_step(executor, sequences, blocks, begin, end, cut.chunk, done, results);
  }
  return results;
}

}  // namespace deepinfer::testing
