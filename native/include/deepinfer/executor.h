// The narrow waist between the engine and a device. The engine plans; an executor computes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deepinfer/batch.h"
#include "deepinfer/kv_cache.h"

namespace deepinfer {

struct ModelInfo {
  std::string family;  // "llama"
  std::string name;    // from metadata, for people
  int32_t vocab_size = 0;
  int32_t max_positions = 0;  // the model's own context limit, tokens
  int32_t num_layers = 0;
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;  // resident after packing
};

// Receives logits in strips of whole rows, in row order, on the engine thread. The memory is the
// executor's and is valid only during the call. One path for sampling, prompt scores, KL and tests.
class LogitsSink {
 public:
  virtual ~LogitsSink() = default;
  // logits: [num_rows, vocab_size] fp32; rows are Batch::logit_tokens[first_row ..].
  virtual void consume(int first_row, int num_rows, const float* logits) = 0;
};

// Contract: the results for a token depend on its sequence's tokens up to it and on nothing else; not on
// neighbours, chunking, block ids or thread count. The engine's promises rest on this.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ModelInfo& info() const = 0;
  virtual std::vector<CacheGroupSpec> cache_groups() const = 0;

  // num_blocks: blocks per group, same order as cache_groups(). Called once, before forward().
  // Throws Error{kResource} when the memory is not there.
  virtual void allocate_cache(std::span<const int32_t> num_blocks) = 0;

  // Largest number of tokens in one Batch; buffers are planned once for it.
  virtual void reserve(int32_t max_batch_tokens) = 0;

  // Computes the batch, writes its cache entries, and hands every wanted logits row to `sink`. When it
  // throws, paged entries of earlier batches are as they were, and the engine may hand it the same work
  // again.
  virtual void forward(const Batch& batch, LogitsSink& sink) = 0;

  // Copies whole blocks (source, destination) inside one group, before the next forward().
  virtual void copy_blocks(int group, std::span<const std::pair<int32_t, int32_t>> pairs) = 0;
};

}  // namespace deepinfer
