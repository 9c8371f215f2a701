// Another executor with things going wrong around it, drawn from a seed: for tests of everything that must
// survive them.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "deepinfer/executor.h"

namespace deepinfer {

struct FaultConfig {
  uint64_t seed = 0;
  double throw_rate = 0;  // share of forward() calls that throw: before, in the middle of or after the work
  int32_t poison_token = -1;  // a batch that computes this token always throws
  double nan_rate = 0;        // share of logits rows that come as NaN or infinite
  double copy_rate = 0;       // share of copy_blocks() calls that throw
  double slow_rate = 0;       // share of forward() calls that take `slow_seconds` more
  double slow_seconds = 0;
  int64_t hang_at_step = -1;  // forward() number hang_at_step (0-based) takes `hang_seconds` more
  double hang_seconds = 0;
};

class FaultyExecutor : public Executor {
 public:
  // `inner` outlives this.
  FaultyExecutor(Executor& inner, const FaultConfig& config);

  const ModelInfo& info() const override { return inner_.info(); }
  std::vector<CacheGroupSpec> cache_groups() const override { return inner_.cache_groups(); }
  void allocate_cache(std::span<const int32_t> num_blocks) override { inner_.allocate_cache(num_blocks); }
  void reserve(int32_t max_batch_tokens) override { inner_.reserve(max_batch_tokens); }
  void forward(const Batch& batch, LogitsSink& sink) override;
  void copy_blocks(int group, std::span<const std::pair<int32_t, int32_t>> pairs) override;

 private:
  class Sink;

  bool happens(double rate);
  [[noreturn]] void throw_something();

  Executor& inner_;
  FaultConfig config_;
  std::mt19937_64 rng_;
  int64_t num_steps_ = 0;
  std::vector<float> bad_row_;  // [vocab_size]
};

}  // namespace deepinfer
