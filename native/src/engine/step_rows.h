// The logits rows of one step: which are wanted, for whom, and what came of them. Sampling and scoring run
// in parallel over rows while the executor's strip is in cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "deepinfer/batch.h"
#include "deepinfer/executor.h"
#include "deepinfer/threads.h"
#include "engine/request_state.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

// One use of one row. A row may be scored and sampled, and sampled for several samples (n > 1).
struct RowTask {
  enum class Kind : uint8_t {
    kPromptScore,  // the prompt's own token is scored, or the row is handed to a callback
    kForcedScore,  // so is a token of the output that was known without the row
    kSample,
  };
  int32_t row = 0;       // into Batch::logit_tokens; ascending over tasks
  int32_t position = 0;  // that the row predicts
  Sample* sample = nullptr;
  Kind kind = Kind::kSample;
  SampleOutput output;  // of a score: logprobs and error only
};

class StepRows : public LogitsSink {
 public:
  explicit StepRows(ThreadPool& pool);

  // Fills batch.logit_tokens and the tasks. `batch` was built from `work`.
  void plan(std::span<const ScheduledWork> work, Batch& batch, int32_t vocab_size);
  void consume(int first_row, int num_rows, const float* logits) override;

  // After forward(): every task in row order with its output.
  std::span<RowTask> tasks() { return tasks_; }

 private:
  void plan_position(Sample& sample, int32_t position, int32_t row, bool is_last);
  void run(RowTask& task, std::span<const float> logits, SamplerScratch& scratch) const;

  ThreadPool& pool_;
  std::vector<SamplerScratch> scratch_;  // [num workers]
  std::vector<RowTask> tasks_;
  size_t num_consumed_ = 0;  // leading tasks
  int32_t vocab_size_ = 0;
};

}  // namespace deepinfer
