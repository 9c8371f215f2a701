#include "engine/step_rows.h"

#include <algorithm>
#include <exception>

#include "deepinfer/status.h"

namespace deepinfer {

StepRows::StepRows(ThreadPool& pool) : pool_(pool), scratch_(static_cast<size_t>(pool.num_threads())) {}

void StepRows::plan(std::span<const ScheduledWork> work, Batch& batch, int32_t vocab_size) {
  tasks_.clear();
  num_consumed_ = 0;
  vocab_size_ = vocab_size;
  for (size_t i = 0; i < work.size(); ++i) {
    Sample& sample = static_cast<Sample&>(*work[i].sequence);
    const int32_t begin = sample.num_computed, end = begin + work[i].num_tokens;
    const bool is_last = sample.request->wants_tokens() && end == static_cast<int32_t>(sample.tokens.size());
    for (int32_t position = begin + 1; position <= end; ++position) {
      const size_t num_tasks = tasks_.size();
      plan_position(sample, position, batch.num_logit_rows(), is_last && position == end);
      if (tasks_.size() > num_tasks)
        batch.logit_tokens.push_back(batch.sequences[i].first_token + position - 1 - begin);
    }
  }
}

// What is wanted of the row that predicts `position`.
void StepRows::plan_position(Sample& sample, int32_t position, int32_t row, bool is_last) {
  RequestState& request = *sample.request;
  if (sample.order.sample == 0 && position >= request.next_score && position < request.end_score)
    tasks_.push_back({row, position, &sample, RowTask::Kind::kPromptScore, {}});
  const int32_t num_tokens = static_cast<int32_t>(sample.tokens.size());
  if (position < num_tokens && position >= num_tokens - sample.num_unscored())
    tasks_.push_back({row, position, &sample, RowTask::Kind::kForcedScore, {}});
  if (!is_last) return;
  tasks_.push_back({row, position, &sample, RowTask::Kind::kSample, {}});
  if (sample.order.sample != 0 || sample.num_output() > 0) return;
  request.create_samples();
  for (size_t s = 1; s < request.samples.size(); ++s)
    if (request.samples[s]->state == Sequence::State::kNew)
      tasks_.push_back({row, position, request.samples[s].get(), RowTask::Kind::kSample, {}});
}

void StepRows::consume(int first_row, int num_rows, const float* logits) {
  const size_t begin = num_consumed_;
  while (num_consumed_ < tasks_.size() && tasks_[num_consumed_].row < first_row + num_rows) ++num_consumed_;
  const std::span<RowTask> strip(tasks_.data() + begin, num_consumed_ - begin);
  const auto row_of = [&](const RowTask& task) {
    DI_CHECK(task.row >= first_row, "logits rows must come in order");
    const size_t size = static_cast<size_t>(vocab_size_);
    return std::span<const float>(logits + static_cast<size_t>(task.row - first_row) * size, size);
  };
  pool_.parallel_for(static_cast<int>(strip.size()), 1, [&](int t, int worker) {
    RowTask& task = strip[static_cast<size_t>(t)];
    try {
      run(task, row_of(task), scratch_[static_cast<size_t>(worker)]);
    } catch (const std::exception& e) {  // no memory
      task.output.error = e.what();
    }
  });
  // Callbacks belong to somebody else: one at a time, on the engine's thread, in ascending positions.
  for (RowTask& task : strip) {
    RequestState& state = *task.sample->request;
    const Request& request = state.request;
    std::string& error = state.callback_error;  // once it failed it is not called again
    if (task.kind != RowTask::Kind::kPromptScore || !request.on_logits) continue;
    if (!task.output.error.empty()) continue;
    if (task.position < request.score_begin || task.position >= request.score_end) continue;
    if (!error.empty()) task.output.error = error;
    // A step that is tried again has called before; after a row that cannot be used nothing is called.
    if (task.position != std::max(state.next_call, request.score_begin) || !error.empty()) continue;
    state.next_call = task.position + 1;
    try {
      request.on_logits(task.position, row_of(task).data(), vocab_size_);
    } catch (const std::exception& e) {
      task.output.error = error = str_cat("the score callback failed: ", e.what());
    }
  }
}

void StepRows::run(RowTask& task, std::span<const float> logits, SamplerScratch& scratch) const {
  Sample& sample = *task.sample;
  const Request& request = sample.request->request;
  SampleOutput& output = task.output;
  const auto score = [&](int32_t token, int32_t num_top) {
    output.error = why_not_finite(logits);
    if (output.error.empty() && num_top >= 0) output.logprobs = score_token(logits, token, num_top);
  };
  switch (task.kind) {
    case RowTask::Kind::kPromptScore: {
      const bool is_inside = task.position < sample.request->num_prompt();
      const int32_t token = is_inside ? request.prompt[static_cast<size_t>(task.position)] : 0;
      return score(token, is_inside ? request.prompt_logprobs : -1);
    }
    case RowTask::Kind::kForcedScore:
      return score(sample.tokens[static_cast<size_t>(task.position)], request.sampling.top_logprobs);
    case RowTask::Kind::kSample: break;
  }
  SampleInput input;
  input.logits = logits;
  input.params = &request.sampling;
  input.key = {request.seed, sample.order.sample, task.position};
  const TokenCounts& counts = sample.counts_now();
  input.counts = counts.empty() ? nullptr : &counts;
  if (sample.constraint.is_asked) {
    output = sample_row(input, scratch);
    if (allows_sampled(sample.constraint, output)) return;
    output = {};
    make_refused_mask(sample.constraint, sample.request->stop_tokens, vocab_size_);
  }
  if (sample.constraint.is_active()) {
    output.error = sample.constraint.error;
    if (!output.error.empty()) return;
    if (sample.constraint.only >= 0) {  // as where it is forced: the logits have no say
      output.token = sample.constraint.only;
      if (request.sampling.top_logprobs >= 0) score(output.token, request.sampling.top_logprobs);
      return;
    }
    input.mask = sample.constraint.mask;
  }
  input.held = sample.request->held_tokens(sample);
  output = sample_row(input, scratch);
}

}  // namespace deepinfer
