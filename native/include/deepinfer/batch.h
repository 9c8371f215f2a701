// One step's work as flat arrays. Built by the batch builder from what the scheduler decided, read by
// executors, owned by nobody else. Everything is an index or a count; there are no pointers.
#pragma once

#include <cstdint>
#include <vector>

namespace deepinfer {

struct BatchSequence {
  int32_t first_token = 0;   // index of its first token in Batch::tokens
  int32_t num_tokens = 0;    // tokens computed for it in this step (prefill chunk, decode, or verify)
  int32_t num_computed = 0;  // tokens of the sequence whose cache entries existed before this step
};

// Block ids of one cache group, ragged: sequence s owns blocks[offsets[s] .. offsets[s + 1]).
struct BlockTables {
  std::vector<int32_t> blocks;   // [total blocks over sequences]
  std::vector<int32_t> offsets;  // [num_sequences + 1]
};

struct Batch {
  std::vector<int32_t> tokens;           // [num_tokens] token ids, sequence by sequence
  std::vector<int32_t> positions;        // [num_tokens] absolute positions, 0-based
  std::vector<int32_t> token_sequences;  // [num_tokens] index into sequences
  std::vector<BatchSequence> sequences;  // [num_sequences]
  std::vector<BlockTables> groups;       // [num cache groups], same order as Executor::cache_groups()
  std::vector<int32_t>
      logit_tokens;  // [num_logit_rows] ascending indices into tokens: rows whose logits are wanted

  int num_tokens() const { return static_cast<int>(tokens.size()); }
  int num_logit_rows() const { return static_cast<int>(logit_tokens.size()); }
};

}  // namespace deepinfer
