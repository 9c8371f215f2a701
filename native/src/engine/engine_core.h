// The engine without its thread: everything that a step does. One owner at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "batch/batch_builder.h"
#include "deepinfer/engine.h"
#include "engine/fault_search.h"
#include "engine/late_texts.h"
#include "engine/request_state.h"
#include "engine/step_cost.h"
#include "engine/step_rows.h"
#include "kv/kv_manager.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

class EngineCore : private TokenStore {
 public:
  EngineCore(Executor& executor, ThreadPool& pool, std::shared_ptr<const TokenTable> tokens,
             EngineConfig config);

  // Throws Error{kBadRequest} when the request can never run. Reads constants only: any thread may call it.
  void check_request(const Request& request) const;

  void add(Request&& request);  // was checked, and its id is not live
  void abort(uint64_t id);      // nothing happens when it is not live
  void abort_all();
  void abort_unstarted();  // those never admitted
  bool has_work() const { return !live_.empty(); }

  // One step in three parts. What the plan decided stays as it is while it is computed: anybody who keeps
  // plan() and finish() out may read the engine meanwhile.
  bool plan();     // schedule and build; false when nothing is to be computed
  void compute();  // execute and sample
  void finish();   // advance, or deal with a failure. Throws what ends the engine
  void step() {
    if (!plan()) return;
    compute();
    finish();
  }

  std::vector<Completion> take_finished();  // in the order of completion
  EngineStats stats() const;
  std::string step_costs() const { return costs_.num_added() > 0 ? costs_.write() : ""; }
  void check_integrity() const { scheduler_.check_integrity(); }
  std::string describe() const;  // every live request and the blocks, as JSON, for people

 private:
  int64_t num_expected_steps(const Request& request) const;
  void load(Sequence& sequence) override;
  void unload(Sequence& sequence) override;
  void measure();
  void hold_all_but_suspects();
  void settle_texts();
  void end_stopped();
  void handle_failure();
  void advance();
  void take_score(RowTask& task);
  void take_token(RowTask& task);
  void make_masks();
  void advance_constraints();
  void run_constraints();
  bool append_token(Sample& sample, int32_t token, bool is_complete);
  void take_forced_score(RowTask& task);
  void end_sample(Sample& sample, FinishReason reason);
  void fail_sample(Sample& sample, const std::string& error);
  void start_forks();
  void remove_ended();
  void cut_short(RequestState& request, FinishReason reason);
  void fail(RequestState& request, const std::string& error, bool is_retryable);
  void complete(RequestState& request);

  // Tokens that are forced in one step: each costs a mask, and the step waits for it.
  static constexpr int32_t kMaxForced = 64;
  // So many requests failed alone, and no step computed in between: it is the executor.
  static constexpr int kMaxBlamed = 16;
  // Where a failed step costs a request all that was computed, it may be that it never gets to the step that
  // its halves would be tried in.
  static constexpr int kMaxRestarts = 8;

  Executor& executor_;
  std::shared_ptr<const TokenTable> token_table_;
  EngineConfig config_;
  ModelInfo info_;
  KvManager kv_;
  Scheduler scheduler_;
  StepRows rows_;
  ConstraintWork constraints_;
  LateTexts late_texts_;
  StepCosts costs_;
  StepBudget budget_;
  Batch batch_;
  std::map<uint64_t, std::unique_ptr<RequestState>> live_;  // by order of arrival
  std::map<uint64_t, RequestState*> by_id_;
  std::vector<Sample*> ended_;                            // in this step; still hold blocks
  std::vector<Sample*> newborn_;                          // forks of this step, with a first token
  std::vector<std::unique_ptr<RequestState>> graveyard_;  // completed in this step
  std::vector<BlockCopy> copies_;
  std::vector<Completion> finished_;
  EngineStats stats_;
  double step_time_ = 0;  // end of the step in progress, seconds on the steady clock
  uint64_t num_arrived_ = 0;
  FaultSearch search_;
  bool is_anybody_held_ = false;
  std::span<const ScheduledWork> work_;  // of this step
  std::exception_ptr step_error_;        // what forward() threw
  bool is_computing_ = false;            // between plan() and finish()
  std::chrono::steady_clock::time_point step_started_;
  double step_cpu_started_ = 0;  // of this thread
  double forward_seconds_ = 0;   // of its CPU time, this step
};

}  // namespace deepinfer
