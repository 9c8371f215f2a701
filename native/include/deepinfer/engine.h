// The engine: one loop thread that schedules, builds, executes, samples and advances.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deepinfer/executor.h"
#include "deepinfer/request.h"
#include "deepinfer/text.h"
#include "deepinfer/threads.h"

namespace deepinfer {

struct EngineConfig {
  int32_t max_num_seqs = 64;        // sequences running at once
  int32_t max_step_tokens = 512;    // token budget of one step
  int32_t prefill_chunk = 512;      // most prompt tokens of one sequence in one step
  int32_t max_context = 0;          // tokens per sequence; 0 = the model's limit
  std::vector<int32_t> num_blocks;  // per cache group
  bool prefix_cache = true;
  // After a mask that allows more tokens, a token is sampled without one and looked up in the matcher; a mask
  // is made only if it is refused. The same results.
  int32_t ask_above = 512;
  bool jump_forward = true;        // tokens that a constraint forces are computed together; the same results
  double forcing_seconds = 0.002;  // that one step takes at most, per constraint, to find what is forced
  // So many requests in the order of arrival are admitted longest first; 1 = in the order of arrival.
  int32_t look_ahead = 256;
  // Texts are decoded and searched for stop strings while the next step is computed, by another thread where
  // there are several; the same results.
  bool async_scheduling = true;
  int32_t async_min_rows = 16;  // fewer are not worth waking a thread
  // Tries smaller budgets than max_step_tokens in the first full steps and stays with the cheapest.
  bool tune_steps = false;
  std::string step_costs;       // what Engine::step_costs() of an earlier run returned; else it is ignored
  int32_t max_waiting = 256;    // submitted but not yet admitted requests (back-pressure)
  int32_t max_finished = 1024;  // completions not yet polled; the loop waits when full
  std::vector<int32_t> eos_token_ids;
  int32_t debug_preempt_every = 0;  // tests: a running sequence is preempted every so many steps; 0 = never
  double debug_busy_wait = 0;       // measurements: share of its CPU time by which a step is drawn out
  bool debug_checks = false;        // tests: blocks are recounted after every step
};

struct EngineStats {
  int64_t num_steps = 0;
  int64_t num_prompt_tokens = 0;  // computed, not counting cache hits
  int64_t num_cached_tokens = 0;
  int64_t num_generated_tokens = 0;
  int64_t num_masks_spared = 0;   // tokens sampled under a constraint for which no mask was made
  int64_t num_forced_tokens = 0;  // of them: appended without a step of their own
  int64_t num_preemptions = 0;
  int64_t num_failed_steps = 0;  // that the executor threw in
  int32_t num_running = 0;
  int32_t num_waiting = 0;
  int64_t num_blocks_used = 0;
  int64_t num_blocks_total = 0;
  double busy_seconds = 0;        // wall time inside steps
  double host_seconds = 0;        // CPU time of the engine's thread in steps, outside the executor
  double constraint_seconds = 0;  // of them: masks and what else matchers do before and after the model
};

class Engine {
 public:
  // The executor, pool and token table outlive the engine.
  Engine(Executor& executor, ThreadPool& pool, std::shared_ptr<const TokenTable> tokens, EngineConfig config);
  ~Engine();  // stops the loop; unfinished requests are dropped
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // False when the waiting queue is full: poll, then try again. Throws Error{kBadRequest} on a request
  // that can never run. Moves from `request` only when it returns true.
  bool try_submit(Request& request);

  // Up to `max` completions in the order of completion; waits at most `timeout_seconds` for the first.
  // A step in which the executor fails is tried again, then in halves, until one request fails alone, twice:
  // that one ends (Completion::error, retryable unless it is a broken invariant) and the others go on, as if
  // nothing had happened. When many requests end like this and no step computes in between, or on a broken
  // invariant of the engine itself, the loop ends and, once no completions are left, poll throws what ended
  // it.
  std::vector<Completion> poll(int32_t max, double timeout_seconds);

  void abort(uint64_t id);  // completes it with FinishReason::kAborted
  void abort_all();
  void abort_unstarted();  // those that wait and have never been computed; the others go on
  void stop();             // ends the loop after the current step and joins; idempotent
  // Like stop(), but gives up on a step that does not end within the time: false, and only ending the process
  // ends the loop.
  bool try_stop(double timeout_seconds);
  EngineStats stats() const;
  // What steps have cost so far, as text to keep: for this model, build, precision and number of threads on
  // this machine. Empty when nothing new was measured.
  std::string step_costs() const;
  // What it is doing, as JSON for people. Works while a step computes or hangs.
  std::string describe() const;

  // Recounts every block against the sequences that hold it, between two steps; throws Error{kInternal} with
  // the numbers.
  void check_integrity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer
