#include "scheduler/scheduler.h"

#include <algorithm>
#include <limits>

#include "deepinfer/status.h"

namespace deepinfer {

uint64_t rank_of(uint64_t arrival, int64_t num_steps, int32_t look_ahead) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto group = arrival / static_cast<uint64_t>(look_ahead);
  return group << 32 | static_cast<uint64_t>(kMost - std::clamp<int64_t>(num_steps, 0, kMost));
}

void Scheduler::add(Sequence& sequence) {
  DI_CHECK(sequence.state == Sequence::State::kNew && sequence.num_wanted > 0);
  sequence.state = Sequence::State::kWaiting;
  DI_CHECK(waiting_.insert(&sequence).second, "two sequences of one order");
}

void Scheduler::load(Sequence& sequence) {
  if (store_ != nullptr && sequence.tokens.empty()) store_->load(sequence);
}

void Scheduler::unload(Sequence& sequence) {
  if (store_ != nullptr && sequence.order.sample > 0) store_->unload(sequence);
}

void Scheduler::start(Sequence& sequence) {
  load(sequence);
  sequence.state = Sequence::State::kRunning;
  running_.insert(std::ranges::upper_bound(running_, &sequence, Older{}), &sequence);
}

void Scheduler::advance(Sequence& sequence, int32_t num_tokens) {
  sequence.num_computed += num_tokens;
  sequence.num_scheduled = 0;
  kv_.publish(sequence.blocks, sequence.tokens, sequence.num_computed);
}

void Scheduler::fork(const Sequence& parent, Sequence& child, std::vector<BlockCopy>& copies) {
  DI_CHECK(child.state == Sequence::State::kNew);
  const bool has_seat = num_running() < config_.max_num_seqs;
  const bool is_next = waiting_.empty() || child.order < (*waiting_.begin())->order;
  if (has_seat && is_next &&
      kv_.fork(parent.blocks, child.blocks, parent.num_computed, num_spare(), copies)) {
    child.num_computed = parent.num_computed;
    child.num_cached = parent.num_computed;
    start(child);
  } else {
    add(child);
  }
}

void Scheduler::remove(Sequence& sequence) {
  if (sequence.state == Sequence::State::kWaiting) waiting_.erase(&sequence);
  if (sequence.state == Sequence::State::kRunning) std::erase(running_, &sequence);
  kv_.release(sequence.blocks);
  sequence.state = Sequence::State::kFinished;
}

std::span<const ScheduledWork> Scheduler::schedule() {
  ++num_steps_;
  budget_ = config_.max_step_tokens;
  has_preempted_ = false;
  for (Sequence* sequence : running_) sequence->num_scheduled = 0;
  if (config_.preempt_every > 0 && num_steps_ % config_.preempt_every == 0) preempt_for_test();
  schedule_running(true);
  schedule_running(false);
  if (!has_preempted_) admit_waiting();
  work_.clear();
  for (Sequence* sequence : running_)
    if (sequence->num_scheduled > 0) work_.push_back({sequence, sequence->num_scheduled});
  return work_;
}

void Scheduler::schedule_running(bool decodes) {
  for (size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.is_held || (sequence.num_remaining() == 1) != decodes) continue;
    give_tokens(sequence);
  }
}

// Also younger sequences that already have work in this step may lose it here: their tokens go back to the
// budget, and their blocks to somebody older.
void Scheduler::give_tokens(Sequence& sequence) {
  const int32_t num_tokens = std::min({sequence.num_remaining(), config_.prefill_chunk, budget_});
  if (num_tokens <= 0 || !make_room(sequence, sequence.num_computed + num_tokens)) return;
  sequence.num_scheduled = num_tokens;
  budget_ -= num_tokens;
}

bool Scheduler::make_room(Sequence& sequence, int32_t num_tokens) {
  while (!kv_.grow(sequence.blocks, num_tokens)) {
    Sequence& youngest = *running_.back();
    preempt(youngest);
    if (&youngest == &sequence) return false;
  }
  return true;
}

void Scheduler::preempt(Sequence& sequence) {
  budget_ += sequence.num_scheduled;
  sequence.num_scheduled = 0;
  sequence.num_computed = 0;
  ++sequence.num_preemptions;
  ++num_preemptions_;
  has_preempted_ = true;
  std::erase(running_, &sequence);
  kv_.release(sequence.blocks);
  unload(sequence);
  sequence.state = Sequence::State::kWaiting;
  waiting_.insert(&sequence);
}

void Scheduler::restart(Sequence& sequence) {
  if (sequence.state == Sequence::State::kRunning) preempt(sequence);
}

void Scheduler::preempt_for_test() {
  if (running_.empty()) return;
  const uint64_t pick = static_cast<uint64_t>(num_steps_) * 0x9E3779B97F4A7C15ull >> 33;
  Sequence& sequence = *running_[pick % running_.size()];
  if (sequence.num_preemptions < kMaxForcedPreemptions) preempt(sequence);
}

// One block a running sequence stays free at admission: otherwise the newcomer would be preempted as soon as
// an older one grows, over and over.
int32_t Scheduler::num_spare() const { return num_running(); }

// In their order, but for those whose prefix a running sequence is computing right now: of many rows
// with one header, the first computes it and the others follow when it is there.
void Scheduler::admit_waiting() {
  for (auto it = waiting_.begin();
       it != waiting_.end() && num_running() < config_.max_num_seqs && budget_ > 0;) {
    Sequence& sequence = **it;
    if (sequence.is_held) {
      ++it;
      continue;
    }
    const int32_t max_cached = std::min(sequence.max_cached, sequence.num_wanted - 1);
    load(sequence);
    if (kv_.is_prefix_coming(sequence.blocks, sequence.tokens, max_cached)) {
      unload(sequence);
      ++it;
      continue;
    }
    const int32_t num_cached =
        kv_.admit(sequence.blocks, sequence.tokens, sequence.num_wanted, max_cached, num_spare());
    if (num_cached < 0) return;
    sequence.num_computed = num_cached;
    if (sequence.num_cached < 0) sequence.num_cached = num_cached;
    it = waiting_.erase(it);
    start(sequence);
    give_tokens(sequence);
  }
}

void Scheduler::check_integrity() const {
  std::vector<const SequenceBlocks*> holders;
  for (const Sequence* sequence : running_) {
    DI_CHECK(sequence->state == Sequence::State::kRunning);
    holders.push_back(&sequence->blocks);
  }
  for (const Sequence* sequence : waiting_) {
    DI_CHECK(sequence->state == Sequence::State::kWaiting && sequence->blocks.groups.empty());
  }
  DI_CHECK(std::ranges::is_sorted(running_, Older{}));
  kv_.check_integrity(holders);
}

}  // namespace deepinfer
