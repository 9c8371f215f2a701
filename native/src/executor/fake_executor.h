// An executor without a model, for tests of everything around it. The logits after a token are a pure
// function of the tokens before it, read back through the paged cache: a wrong block table, a lost copy or
// a block given away too early changes the answer.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "deepinfer/executor.h"

namespace deepinfer {

struct FakeExecutorConfig {
  int32_t vocab_size = 256;
  int32_t max_positions = 2048;
  uint64_t seed = 0;
  std::vector<CacheGroupSpec> groups;  // empty = one paged group of `block_tokens`
  int32_t block_tokens = 16;
  float logit_scale = 4.0f;  // logits spread over about [-scale, scale]
  std::vector<int32_t> eos_token_ids;
  float eos_bias = 0.0f;           // added to their logits
  double seconds_per_token = 0.0;  // slept, so that tests can look at a busy engine
  int64_t fail_at_step = -1;       // forward() number fail_at_step (0-based) throws ...
  int64_t num_failing_steps = 1;   // ... and so do those after it, this many in all
  int32_t nan_token = -1;          // a history that holds this token has NaN logits
  int32_t strip_rows = 16;         // logits rows handed over at once
};

class FakeExecutor : public Executor {
 public:
  explicit FakeExecutor(FakeExecutorConfig config);

  const ModelInfo& info() const override { return info_; }
  std::vector<CacheGroupSpec> cache_groups() const override { return config_.groups; }
  void allocate_cache(std::span<const int32_t> num_blocks) override;
  void reserve(int32_t max_batch_tokens) override { max_batch_tokens_ = max_batch_tokens; }
  void forward(const Batch& batch, LogitsSink& sink) override;
  void copy_blocks(int group, std::span<const std::pair<int32_t, int32_t>> pairs) override;

 private:
  static constexpr int32_t kUnwritten = -1;

  void write_token(const Batch& batch, int32_t token_index);
  uint64_t history(const Batch& batch, int32_t token_index) const;
  void fill_logits(uint64_t history, float* logits) const;

  // One cell per token of a paged block; a per-sequence block has a running hash (two cells) and a count.
  int64_t cells_per_block(size_t group) const;
  int64_t cell(const Batch& batch, size_t group, int32_t sequence, int32_t position) const;

  FakeExecutorConfig config_;
  ModelInfo info_;
  int32_t max_batch_tokens_ = 0;
  int64_t num_steps_ = 0;
  std::vector<std::vector<int32_t>> cells_;  // [num groups][num blocks * cells_per_block]
  std::vector<float> logits_;                // [strip_rows, vocab_size]
};

}  // namespace deepinfer
