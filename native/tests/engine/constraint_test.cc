// Constraints in the engine, beyond what invariance_test compares: steps saved, groups, failures, limits.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "engine/engine_core.h"
#include "engine/random_requests.h"
#include "engine/sample_constraint.h"
#include "executor/fake_executor.h"
#include "testing.h"

using namespace deepinfer;
using namespace deepinfer::testing;

namespace {

constexpr int32_t kVocab = 40;

// One token after the other, 1 to kVocab - 1 over and over.
Dfa chain(int length) {
  Dfa dfa;
  for (int state = 0; state < length; ++state) dfa.next[{state, 1 + state % (kVocab - 1)}] = state + 1;
  dfa.accepting = {length};
  return dfa;
}

Request request(uint64_t id, std::shared_ptr<const ConstraintTemplate> constraint, int32_t max_tokens) {
  Request r;
  r.id = id;
  r.prompt = {3, 4, static_cast<int32_t>(id % kVocab)};
  r.seed = id;
  r.sampling.max_tokens = max_tokens;
  r.constraint = std::move(constraint);
  return r;
}

struct Outcome {
  std::vector<Completion> done;  // by id
  EngineStats stats;
};

Outcome run(const std::vector<Request>& requests, bool jump_forward = true) {
  FakeExecutorConfig fake;
  fake.vocab_size = kVocab;
  fake.max_positions = 1000;
  fake.eos_token_ids = {0};
  FakeExecutor executor(fake);
  ThreadPool pool(2);
  EngineConfig config;
  config.num_blocks = {400};
  config.eos_token_ids = {0};
  config.jump_forward = jump_forward;
  config.forcing_seconds = 1000;
  config.debug_checks = true;
  EngineCore core(executor, pool, odd_tokens(kVocab), config);
  for (const Request& r : requests) {
    core.check_request(r);
    core.add(Request(r));
  }
  Outcome outcome;
  while (core.has_work()) {
    core.step();
    for (Completion& c : core.take_finished()) outcome.done.push_back(std::move(c));
  }
  std::ranges::sort(outcome.done, {}, &Completion::id);
  outcome.stats = core.stats();
  return outcome;
}

}  // namespace

TEST(the_only_token_of_a_mask) {
  std::vector<uint32_t> mask(4);
  CHECK_EQ(only_token(mask, 100), -1);
  CHECK(!allows_only(mask, std::vector<int32_t>{5}));
  for (const int32_t token : {0, 31, 32, 99}) {
    std::ranges::fill(mask, 0);
    mask[static_cast<size_t>(token) / 32] = 1u << (token % 32);
    CHECK_EQ(only_token(mask, 100), token);
    CHECK(allows_only(mask, std::vector<int32_t>{7, token}));
    CHECK(!allows_only(mask, std::vector<int32_t>{7}));
    mask[2] |= 1u << 9;
    CHECK_EQ(only_token(mask, 100), -1);
  }
  std::ranges::fill(mask, 0);
  mask[3] = 1u << 31;  // beyond the vocabulary
  CHECK_EQ(only_token(mask, 100), -1);
}

TEST(forced_tokens_leave_the_matcher_as_it_was) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Draw draw(seed);
    const RequestRange range;
    const auto compiled = random_constraint(draw, range);
    const auto matcher = compiled->clone(), plain = compiled->clone();
    std::vector<uint32_t> mask(2), expected(2);
    for (int i = 0; i < 12 && matcher->fill_mask(mask); ++i) {
      const std::vector<int32_t> forced = forced_tokens(*matcher, range.vocab_size, 5);
      if (!matcher->error().empty()) break;
      CHECK(plain->fill_mask(expected) && matcher->fill_mask(mask) && mask == expected);
      const auto ahead = compiled->clone();  // proven on one that only ever accepts
      CHECK(forced.size() <= 5);
      std::vector<int32_t> allowed;
      for (int32_t t = 1; t < range.vocab_size; ++t)
        if ((mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) != 0) allowed.push_back(t);
      const bool is_forced = only_token(mask, range.vocab_size) >= 0 && !matcher->done();
      CHECK_EQ(!forced.empty(), is_forced && (allowed.size() == 1));
      if (allowed.empty()) break;
      const int32_t token = allowed[static_cast<size_t>(draw.below(static_cast<int32_t>(allowed.size())))];
      CHECK(matcher->accept(token) && plain->accept(token));
    }
  }
}

TEST(forced_tokens_take_few_steps) {
  const auto constraint = std::make_shared<DfaTemplate>(chain(200));
  const std::vector<Request> requests = {request(1, constraint, 300), request(2, constraint, 150)};
  const Outcome with = run(requests), without = run(requests, false);
  std::vector<int32_t> tokens(200);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(1 + i % (kVocab - 1));
  for (const Outcome& outcome : {with, without}) {
    CHECK(outcome.done[0].samples[0].tokens == tokens);
    CHECK(outcome.done[0].samples[0].constraint_state == ConstraintState::kComplete);
    CHECK(outcome.done[1].samples[0].finish_reason == FinishReason::kLength);
    CHECK_EQ(outcome.done[1].samples[0].tokens.size(), 150u);
    CHECK(outcome.done[1].samples[0].constraint_state == ConstraintState::kIncomplete);
  }
  CHECK_EQ(without.stats.num_steps, 200);
  CHECK_EQ(without.stats.num_forced_tokens, 0);
  CHECK(with.stats.num_steps < 8);  // so many at a time
  CHECK(with.stats.num_forced_tokens > 300);
}

TEST(a_group_is_asked_in_one_go_per_step) {
  const auto group = std::make_shared<DfaGroup>();
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 30; ++id) {
    Draw draw(id);
    const RequestRange range;
    requests.push_back(request(id, random_constraint(draw, range, group), 20));
  }
  const Outcome outcome = run(requests);
  CHECK(group->num_goes > 0);
  CHECK(group->num_goes <= 2 * outcome.stats.num_steps);  // before the model, and after it
}

// Asks that throw: nobody can tell whose fault it is, but who is not in the group goes on.
TEST(a_group_that_throws_ends_its_rows_alone) {
  struct Thrower : DfaGroup {
    void fill_masks(std::span<MatcherCall> calls) override {
      if (++num_calls == 5) throw std::runtime_error("no more masks");
      DfaGroup::fill_masks(calls);
    }
    int num_calls = 0;
  };
  Dfa loop;
  for (int32_t t = 1; t < kVocab; ++t) loop.next[{0, t}] = 0;
  const auto grouped = std::make_shared<DfaTemplate>(loop, std::make_shared<Thrower>());
  const auto alone = std::make_shared<DfaTemplate>(loop);
  const Outcome outcome =
      run({request(0, grouped, 20), request(1, alone, 20), request(2, nullptr, 20), request(3, grouped, 20)});
  for (const size_t id : {0u, 3u}) CHECK(outcome.done[id].error.find("no more masks") != std::string::npos);
  for (const size_t id : {1u, 2u}) CHECK_EQ(outcome.done[id].error, "");
  const Outcome plain = run({request(1, alone, 20), request(2, nullptr, 20)});
  for (const size_t i : {0u, 1u})
    CHECK(plain.done[i].samples[0].tokens == outcome.done[i + 1].samples[0].tokens);
}

TEST(a_matcher_that_fails_is_named_with_its_place) {
  Dfa dfa = chain(20);
  dfa.fail_after = 7;
  const auto failing = std::make_shared<DfaTemplate>(dfa);
  const std::vector<Request> requests = {request(0, failing, 30), request(1, nullptr, 30)};
  for (const bool jump : {false, true}) {
    const Outcome outcome = run(requests, jump);
    const std::string& error = outcome.done[0].error;
    CHECK_EQ(error, "the constraint failed: the automaton broke (sample 0, position 10)");
    CHECK(!outcome.done[0].error_retryable);
    CHECK_EQ(outcome.done[0].samples[0].tokens.size(), 7u);
    CHECK(outcome.done[0].samples[0].constraint_state == ConstraintState::kIncomplete);
    CHECK_EQ(outcome.done[1].error, "");
  }
}

TEST(min_tokens_gives_way_to_a_constraint_that_is_complete) {
  Request done = request(0, std::make_shared<DfaTemplate>(chain(3)), 30);
  done.sampling.min_tokens = 10;
  Dfa stays = chain(3);  // not done after 3 tokens: it may go on, by a token that is a stop
  stays.next[{3, 9}] = 3;
  Request stuck = request(1, std::make_shared<DfaTemplate>(stays), 30);
  stuck.sampling.min_tokens = 10;
  stuck.sampling.stop_token_ids = {9};
  Request at_once = request(2, std::make_shared<DfaTemplate>(chain(0)), 30);  // only the empty text
  at_once.sampling.min_tokens = 10;
  for (const bool jump : {false, true}) {
    const Outcome outcome = run({done, stuck, at_once}, jump);
    CHECK_EQ(outcome.done[0].samples[0].tokens.size(), 3u);
    CHECK(outcome.done[0].samples[0].constraint_state == ConstraintState::kComplete);
    CHECK(outcome.done[1].error.starts_with("no token is allowed here"));
    CHECK_EQ(outcome.done[2].error, "");
    CHECK_EQ(outcome.done[2].samples[0].stop_token, 0);
    CHECK(outcome.done[2].samples[0].constraint_state == ConstraintState::kComplete);
  }
}

TEST(log_probabilities_of_forced_tokens_are_all_there) {
  const auto constraint = std::make_shared<DfaTemplate>(chain(100));
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 6; ++id) {
    requests.push_back(request(id, constraint, id % 2 == 0 ? 200 : 33));
    requests.back().sampling.top_logprobs = 2;
    requests.back().num_samples = 2;
    if (id > 3) requests.back().sampling.stop = {"cb"};  // never, or inside the forced run
    if (id == 4) requests.back().sampling.stop = {"ab"};
  }
  const Outcome with = run(requests), without = run(requests, false);
  CHECK(with.stats.num_steps < without.stats.num_steps / 5);
  for (size_t i = 0; i < requests.size(); ++i)
    for (size_t s = 0; s < 2; ++s) {
      const SampleResult &a = with.done[i].samples[s], &b = without.done[i].samples[s];
      CHECK(a.tokens == b.tokens && a.text == b.text && a.finish_reason == b.finish_reason);
      CHECK_EQ(a.logprobs.size(), a.tokens.size());
      CHECK_EQ(b.logprobs.size(), b.tokens.size());
      for (size_t t = 0; t < a.tokens.size(); ++t) {
        CHECK_EQ(a.logprobs[t].token, a.tokens[t]);
        CHECK(a.logprobs[t].logprob == b.logprobs[t].logprob && a.logprobs[t].top == b.logprobs[t].top);
      }
    }
}

TEST_MAIN()
