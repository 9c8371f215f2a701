#include "scheduler/scheduler.h"

#include <memory>
#include <random>

#include "testing.h"

using namespace deepinfer;

namespace {

struct Rig {
  Rig(SchedulerConfig config, int32_t num_blocks, bool prefix_cache = false)
      : kv({{"paged", CacheKind::kPaged, 4, 0}}, std::vector<int32_t>{num_blocks}, prefix_cache),
        scheduler(config, kv) {}

  Sequence& add(int32_t num_tokens) {
    auto sequence = std::make_unique<Sequence>();
    sequence->order = {0, sequences.size(), 0};
    sequence->tokens.assign(static_cast<size_t>(num_tokens), static_cast<int32_t>(sequences.size()));
    sequence->num_wanted = num_tokens;
    scheduler.add(*sequence);
    sequences.push_back(std::move(sequence));
    return *sequences.back();
  }
  // One step; every sequence that is fully computed gets one more token.
  std::vector<ScheduledWork> step() {
    const std::span<const ScheduledWork> work = scheduler.schedule();
    std::vector<ScheduledWork> copy(work.begin(), work.end());
    for (const auto& [sequence, num_tokens] : copy) {
      scheduler.advance(*sequence, num_tokens);
      if (sequence->num_remaining() > 0) continue;
      sequence->tokens.push_back(7);
      ++sequence->num_wanted;
    }
    scheduler.check_integrity();
    return copy;
  }

  KvManager kv;
  Scheduler scheduler;
  std::vector<std::unique_ptr<Sequence>> sequences;
};

}  // namespace

TEST(prefill_comes_in_chunks_within_the_budget) {
  Rig rig({.max_num_seqs = 4, .max_step_tokens = 10, .prefill_chunk = 6}, 100);
  rig.add(15);
  rig.add(9);
  std::vector<ScheduledWork> work = rig.step();
  CHECK_EQ(work.size(), 2u);
  CHECK_EQ(work[0].num_tokens, 6);
  CHECK_EQ(work[1].num_tokens, 4);
  work = rig.step();
  CHECK_EQ(work[0].num_tokens, 6);
  CHECK_EQ(work[1].num_tokens, 4);
  work = rig.step();
  CHECK_EQ(work[0].num_tokens, 3);
  CHECK_EQ(work[1].num_tokens, 1);
}

TEST(decodes_go_before_prefills) {
  Rig rig({.max_num_seqs = 4, .max_step_tokens = 5, .prefill_chunk = 5}, 100);
  Sequence& old = rig.add(30);
  Sequence& young = rig.add(2);
  rig.step();
  CHECK_EQ(old.num_computed, 5);
  CHECK_EQ(young.num_computed, 0);  // no budget was left
  old.num_wanted = 6;               // as if it were short: now it decodes
  const std::vector<ScheduledWork> work = rig.step();
  CHECK_EQ(work.size(), 2u);
  CHECK_EQ(work[0].num_tokens, 1);
  CHECK_EQ(work[1].num_tokens, 2);
}

TEST(seats_are_limited) {
  Rig rig({.max_num_seqs = 2, .max_step_tokens = 100, .prefill_chunk = 100}, 100);
  for (int i = 0; i < 5; ++i) rig.add(3);
  CHECK_EQ(rig.step().size(), 2u);
  CHECK_EQ(rig.scheduler.num_waiting(), 3);
  rig.scheduler.remove(*rig.sequences[0]);
  CHECK_EQ(rig.step().size(), 2u);
  CHECK_EQ(rig.sequences[2]->num_computed, 3);
}

TEST(the_youngest_is_preempted_and_comes_back_first) {
  Rig rig({.max_num_seqs = 8, .max_step_tokens = 100, .prefill_chunk = 100}, 4);
  Sequence& a = rig.add(4);
  Sequence& b = rig.add(4);
  rig.add(4);
  rig.step();  // a and b run; the third waits because each running one keeps a spare block
  CHECK_EQ(rig.scheduler.num_running(), 2);
  for (int i = 0; i < 30 && b.num_preemptions == 0; ++i) rig.step();
  CHECK_EQ(b.num_preemptions, 1);
  CHECK_EQ(a.num_preemptions, 0);
  CHECK_EQ(b.num_computed, 0);
  rig.scheduler.remove(a);
  const std::vector<ScheduledWork> work = rig.step();
  CHECK_EQ(work[0].sequence, &b);
  CHECK_EQ(work[0].num_tokens, b.num_computed);  // all of it again
}

TEST(a_younger_sequence_loses_work_of_this_step_to_an_older_one) {
  // The older one is in prefill and thus scheduled after the younger decode, but needs nothing: blocks of a
  // prompt are held from the start. Only when it decodes can it take blocks.
  Rig rig({.max_num_seqs = 8, .max_step_tokens = 100, .prefill_chunk = 3}, 3);
  Sequence& old = rig.add(4);
  Sequence& young = rig.add(1);
  for (int i = 0; i < 40 && young.num_preemptions == 0; ++i) rig.step();
  CHECK_EQ(young.num_preemptions, 1);
  CHECK_EQ(old.num_preemptions, 0);
}

TEST(rows_with_one_header_wait_for_the_first_of_them) {
  Rig rig({.max_num_seqs = 8, .max_step_tokens = 100, .prefill_chunk = 5}, 100, true);
  for (int i = 0; i < 3; ++i) {
    Sequence& sequence = rig.add(11);
    sequence.tokens.assign(8, 1);  // the header, then tokens of its own
    sequence.tokens.insert(sequence.tokens.end(), 3, 100 + i);
  }
  rig.add(3);
  CHECK_EQ(rig.step().size(), 2u);  // the first and the stranger
  CHECK_EQ(rig.step().size(), 2u);
  CHECK_EQ(rig.step().size(), 4u);
  CHECK_EQ(rig.sequences[1]->num_cached, 8);
  CHECK_EQ(rig.sequences[2]->num_cached, 8);
  CHECK_EQ(rig.sequences[3]->num_cached, 0);
}

// Random arrivals into tiny pools: everything ends, nobody starves, every block comes back.
TEST(everything_ends_when_blocks_are_scarce) {
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    const int32_t num_blocks = 4 + static_cast<int32_t>(rng() % 8);
    Rig rig({.max_num_seqs = 1 + static_cast<int32_t>(rng() % 6),
             .max_step_tokens = 1 + static_cast<int32_t>(rng() % 20),
             .prefill_chunk = 1 + static_cast<int32_t>(rng() % 8),
             .preempt_every = round % 3 == 0 ? 3 : 0},
            num_blocks, round % 2 == 0);
    std::vector<int32_t> ends;
    size_t num_done = 0;
    int steps = 0;
    while (num_done < 12 && ++steps < 20000) {
      if (ends.size() < 12 && rng() % 2 == 0) {
        const int32_t total = 2 + static_cast<int32_t>(rng() % static_cast<uint32_t>(num_blocks * 4 - 2));
        ends.push_back(total);
        rig.add(1 + static_cast<int32_t>(rng() % static_cast<uint32_t>(total)));
      }
      if (rig.scheduler.num_running() + rig.scheduler.num_waiting() == 0) continue;
      const bool may_be_idle = round % 3 == 0;  // a forced preemption skips admission for one step
      CHECK(!rig.step().empty() || may_be_idle);
      for (size_t i = 0; i < ends.size(); ++i) {
        Sequence& sequence = *rig.sequences[i];
        if (sequence.state == Sequence::State::kFinished || std::ssize(sequence.tokens) < ends[i]) continue;
        rig.scheduler.remove(sequence);
        ++num_done;
      }
    }
    CHECK_EQ(num_done, 12u);
    CHECK_EQ(rig.kv.num_blocks_used(), 0);
    rig.scheduler.check_integrity();
  }
}

TEST_MAIN()
