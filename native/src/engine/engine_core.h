// The engine without its thread: everything that a step does. One owner at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "batch/batch_builder.h"
#include "deepinfer/engine.h"
#include "engine/request_state.h"
#include "engine/step_rows.h"
#include "kv/kv_manager.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

class EngineCore {
 public:
  EngineCore(Executor& executor, ThreadPool& pool, std::shared_ptr<const TokenTable> tokens,
             EngineConfig config);

  // Throws Error{kBadRequest} when the request can never run. Reads constants only: any thread may call it.
  void check_request(const Request& request) const;

  void add(Request&& request);  // was checked, and its id is not live
  void abort(uint64_t id);      // nothing happens when it is not live
  void abort_all();
  bool has_work() const { return !live_.empty(); }

  // Schedule, build, execute, sample, advance. Throws what ends the engine.
  void step();

  std::vector<Completion> take_finished();  // in the order of completion
  EngineStats stats() const;
  void check_integrity() const { scheduler_.check_integrity(); }

 private:
  bool execute(std::span<const ScheduledWork> work);
  void advance(std::span<const ScheduledWork> work);
  void take_score(RowTask& task);
  void take_token(RowTask& task);
  void end_sample(Sample& sample, FinishReason reason);
  void start_forks();
  void remove_ended();
  void cut_short(RequestState& request, FinishReason reason);
  void fail(RequestState& request, const std::string& error, bool is_retryable);
  void complete(RequestState& request);

  static constexpr int kMaxFailedSteps = 3;  // in a row

  Executor& executor_;
  std::shared_ptr<const TokenTable> token_table_;
  EngineConfig config_;
  ModelInfo info_;
  KvManager kv_;
  Scheduler scheduler_;
  StepRows rows_;
  Batch batch_;
  std::map<uint64_t, std::unique_ptr<RequestState>> live_;  // by order of arrival
  std::map<uint64_t, RequestState*> by_id_;
  std::vector<Sample*> ended_;                            // in this step; still hold blocks
  std::vector<Sample*> newborn_;                          // forks of this step, with a first token
  std::vector<std::unique_ptr<RequestState>> graveyard_;  // completed in this step
  std::vector<BlockCopy> copies_;
  std::vector<Completion> finished_;
  EngineStats stats_;
  uint64_t num_arrived_ = 0;
  int num_failed_steps_ = 0;
};

}  // namespace deepinfer
