// Decides how many tokens of which sequence the next step computes, and who holds blocks.
//
// Decodes come first, then prefills already running, then admission: longer requests before shorter ones
// among those that arrived together, see rank_of() (those whose prefix is being computed by another wait for
// it, and let others pass). A decode that got several tokens at
// once, because a constraint forced them, counts as a prefill until they are computed. Blocks for
// all known tokens are taken at admission, so only growth by new tokens can run out of them; then the
// youngest running sequence gives its blocks back, and returns to its place at the front of the waiting
// ones to be recomputed. The oldest sequence is never preempted by another and fits alone, so there is
// always progress.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "kv/kv_manager.h"
#include "scheduler/sequence.h"

namespace deepinfer {

struct SchedulerConfig {
  int32_t max_num_seqs = 64;
  int32_t max_step_tokens = 512;
  int32_t prefill_chunk = 512;
  int32_t preempt_every = 0;  // tests: every so many steps one running sequence is preempted; 0 = never
};

// The product: this many tokens of this sequence, starting at its num_computed.
struct ScheduledWork {
  Sequence* sequence = nullptr;
  int32_t num_tokens = 0;
};

class Scheduler {
 public:
  // Sequences belong to the caller and stay where they are until remove().
  Scheduler(SchedulerConfig config, KvManager& kv, TokenStore* store = nullptr)
      : config_(config), kv_(kv), store_(store) {}

  void add(Sequence& sequence);  // joins the waiting ones at its place
  // After its work of this step is computed: `num_tokens` more tokens are in the cache.
  void advance(Sequence& sequence, int32_t num_tokens);
  // A new sequence that shares everything `parent` has computed. Runs at once when there is a seat and room,
  // else waits to be recomputed. Block copies to make are appended to `copies`.
  void fork(const Sequence& parent, Sequence& child, std::vector<BlockCopy>& copies);
  void remove(Sequence& sequence);  // finished or aborted; gives its blocks back
  // What was computed for it is not to be trusted: back to its place among the waiting ones.
  void restart(Sequence& sequence);

  // Work of the next step, oldest sequence first. Valid until the next call.
  std::span<const ScheduledWork> schedule();

  // Tokens of one step from now on, instead of max_step_tokens.
  void set_budget(int32_t num_tokens) { config_.max_step_tokens = num_tokens; }
  int32_t budget() const { return config_.max_step_tokens; }

  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  int32_t num_waiting() const { return static_cast<int32_t>(waiting_.size()); }
  int64_t num_preemptions() const { return num_preemptions_; }
  void check_integrity() const;

 private:
  struct Older {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->order < b->order; }
  };

  void schedule_running(bool decodes);
  void admit_waiting();
  bool make_room(Sequence& sequence, int32_t num_tokens);
  void give_tokens(Sequence& sequence);
  void start(Sequence& sequence);
  void preempt(Sequence& sequence);
  void preempt_for_test();
  void load(Sequence& sequence);
  void unload(Sequence& sequence);
  int32_t num_spare() const;

  static constexpr int32_t kMaxForcedPreemptions = 8;  // per sequence, so that tests come to an end

  SchedulerConfig config_;
  KvManager& kv_;
  TokenStore* store_;                   // null: sequences always have their tokens
  std::vector<Sequence*> running_;      // oldest first
  std::set<Sequence*, Older> waiting_;  // oldest first
  std::vector<ScheduledWork> work_;
  int32_t budget_ = 0;          // tokens left in this step
  bool has_preempted_ = false;  // in this step
  int64_t num_steps_ = 0;
  int64_t num_preemptions_ = 0;
};

}  // namespace deepinfer
