// An executor that fails in every way a seed can draw: each request ends once, as the answer it would have
// had without faults or as an error, and every block comes back.
#include <cstdlib>
#include <map>

#include "engine/engine_core.h"
#include "engine/naive_engine.h"
#include "engine/random_requests.h"
#include "executor/fake_executor.h"
#include "executor/faulty_executor.h"
#include "support/sanitized.h"
#include "testing.h"

using namespace deepinfer;
using namespace deepinfer::testing;

namespace {

constexpr int32_t kVocab = 40;
constexpr int32_t kContext = 56;
constexpr int32_t kPoison = 23;

FakeExecutorConfig fake_config(Draw& draw) {
  FakeExecutorConfig config;
  config.vocab_size = kVocab;
  config.max_positions = 200;
  config.seed = draw.bits();
  config.eos_token_ids = {0};
  config.eos_bias = 1.0f;
  config.strip_rows = draw.between(1, 9);
  config.groups = {{"paged", CacheKind::kPaged, draw.pick(std::array{1, 3, 16}), 0}};
  if (draw.one_in(4)) config.groups.push_back({"state", CacheKind::kSequence, 1, 0});
  return config;
}

FaultConfig fault_config(Draw& draw) {
  FaultConfig faults;
  faults.seed = draw.bits();
  faults.throw_rate = draw.pick(std::array{0.0, 0.02, 0.1, 0.5});
  faults.nan_rate = draw.pick(std::array{0.0, 0.0, 0.02});
  faults.copy_rate = draw.pick(std::array{0.0, 0.5});
  if (draw.one_in(3)) faults.poison_token = kPoison;
  return faults;
}

// From "one sequence fits" to "all fit": out of blocks is the rule, not the exception.
EngineConfig engine_config(Draw& draw, const std::vector<CacheGroupSpec>& groups) {
  EngineConfig config;
  config.max_num_seqs = draw.pick(std::array{1, 3, 17, 64});
  config.prefill_chunk = draw.pick(std::array{1, 16, 512});
  config.max_step_tokens = draw.pick(std::array{5, 40, 600});
  config.max_context = kContext;
  config.prefix_cache = draw.one_in(2);
  config.async_scheduling = draw.one_in(2);
  config.tune_steps = draw.one_in(2);
  config.async_min_rows = draw.pick(std::array{0, 16});
  config.debug_checks = true;
  config.eos_token_ids = {0};
  const int32_t num_fitting = draw.pick(std::array{1, 2, 5, 100});
  for (const CacheGroupSpec& group : groups) {
    const int32_t blocks = (kContext + group.block_tokens - 1) / group.block_tokens;
    config.num_blocks.push_back(group.kind == CacheKind::kPaged ? blocks * num_fitting : num_fitting);
  }
  return config;
}

struct Outcome {
  std::map<uint64_t, std::string> rows;
  bool was_lost = false;  // the executor failed again and again, and the engine gave up
};

Outcome run(Executor& executor, const EngineConfig& config, const std::vector<Request>& requests,
            ThreadPool& pool) {
  Outcome outcome;
  EngineCore core(executor, pool, odd_tokens(kVocab), config);
  std::map<uint64_t, int32_t> next_position;
  for (Request request : requests) {
    int32_t& next = next_position[request.id] = request.score_begin;
    request.on_logits = [&next](int32_t position, const float*, int32_t) {
      CHECK_EQ(position, next);  // each once, in order, whatever was tried again
      ++next;
    };
    core.add(std::move(request));
  }
  try {
    for (int steps = 0; core.has_work(); ++steps) {
      if (steps == 100000) fail(ErrorCode::kInternal, "no end: ", core.describe());
      core.step();
    }
  } catch (const std::exception& e) {
    CHECK(std::string(e.what()).find("no end") == std::string::npos);
    outcome.was_lost = true;
    core.abort_all();
  }
  for (const Completion& completion : core.take_finished()) {
    CHECK(outcome.rows.emplace(completion.id, print(completion)).second);
    if (!completion.error.empty()) outcome.rows[completion.id] = "error " + completion.error;
  }
  core.check_integrity();
  CHECK_EQ(core.stats().num_blocks_used, 0);
  CHECK_EQ(outcome.rows.size(), requests.size());
  return outcome;
}

}  // namespace

// DEEPINFER_TEST_ROUNDS: more of them for long runs.
TEST(every_request_ends_as_its_answer_or_as_an_error) {
  const char* rounds = std::getenv("DEEPINFER_TEST_ROUNDS");
  const uint64_t num_rounds = rounds != nullptr ? std::strtoull(rounds, nullptr, 10)
                              : kIsSanitized    ? 200
                                                : 3000;
  int num_answers = 0, num_errors = 0, num_lost = 0;
  for (uint64_t seed = 0; seed < num_rounds; ++seed) {
    Draw draw(seed);
    const FakeExecutorConfig fake = fake_config(draw);
    const FaultConfig faults = fault_config(draw);
    const EngineConfig config = engine_config(draw, fake.groups);
    RequestRange range;
    range.max_tokens = 12;
    std::vector<Request> requests;
    for (uint64_t id = 0; id < 8; ++id) requests.push_back(random_request(draw, range, id));
    ThreadPool pool(1);
    FakeExecutor healthy(fake), inner(fake);
    FaultyExecutor faulty(inner, faults);
    const Outcome want = run(healthy, config, requests, pool);
    const Outcome got = run(faulty, config, requests, pool);
    CHECK(!want.was_lost);
    num_lost += got.was_lost;
    for (const auto& [id, row] : got.rows) {
      if (got.was_lost || row.starts_with("error ")) {
        num_errors += !want.rows.at(id).starts_with("error ");
        continue;
      }
      ++num_answers;
      CHECK_EQ(row, want.rows.at(id));
    }
    // Without faults nothing fails that would not fail anyway.
    if (faults.throw_rate == 0 && faults.nan_rate == 0 && faults.poison_token < 0)
      for (const auto& [id, row] : got.rows) CHECK_EQ(row, want.rows.at(id));
  }
  CHECK(num_answers > 2 * num_errors);  // most faults cost nobody anything
  CHECK(num_errors > 0);
  CHECK(num_lost * 20 < static_cast<int>(num_rounds));
}

TEST(a_poisonous_request_ends_alone) {
  FakeExecutorConfig fake;
  fake.vocab_size = kVocab;
  fake.groups = {{"paged", CacheKind::kPaged, 4, 0}};
  FakeExecutor inner(fake);
  FaultConfig faults;
  faults.poison_token = kPoison;
  FaultyExecutor executor(inner, faults);
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 20; ++id) {
    Request& r = requests.emplace_back();
    r.id = id;
    r.prompt = {1, static_cast<int32_t>(id) + 2, 3};
    if (id % 6 == 5) r.prompt.push_back(kPoison);
    r.sampling.max_tokens = 6;
    r.sampling.logit_bias = {{kPoison, -100.0f}};
  }
  EngineConfig config;
  config.num_blocks = {400};
  config.debug_checks = true;
  ThreadPool pool(1);
  const Outcome got = run(executor, config, requests, pool);
  CHECK(!got.was_lost);
  for (const auto& [id, row] : got.rows) CHECK_EQ(row.starts_with("error token 23 breaks"), id % 6 == 5);
}

TEST(the_error_says_which_sample_and_position) {
  FakeExecutorConfig fake;
  fake.vocab_size = kVocab;
  fake.groups = {{"paged", CacheKind::kPaged, 4, 0}};
  fake.nan_token = 7;
  FakeExecutor executor(fake);
  Request r;
  r.prompt = {1, 2, 7};
  r.sampling.max_tokens = 3;
  r.num_samples = 2;
  EngineConfig config;
  config.num_blocks = {40};
  ThreadPool pool(1);
  const Outcome got = run(executor, config, {r}, pool);
  CHECK_EQ(got.rows.at(0), "error the model gave logits that are not finite (sample 0, position 3)");
}

// Memory does not grow with n times the prompt.
TEST(samples_that_wait_or_are_done_hold_no_tokens) {
  FakeExecutorConfig fake;
  fake.groups = {{"paged", CacheKind::kPaged, 4, 0}};
  FakeExecutor executor(fake);
  EngineConfig config;
  config.num_blocks = {600};
  config.max_num_seqs = 2;
  ThreadPool pool(1);
  EngineCore core(executor, pool, odd_tokens(256), config);
  Request r;
  r.prompt.assign(1000, 5);
  r.sampling.max_tokens = 4;
  r.sampling.ignore_eos = true;
  r.sampling.presence_penalty = 0.5f;
  r.num_samples = 7;
  core.add(std::move(r));
  const auto num_with = [&](const std::string& what) {
    int count = 0;
    const std::string about = core.describe();
    for (size_t at = about.find(what); at != std::string::npos; at = about.find(what, at + 1)) ++count;
    return count;
  };
  while (core.stats().num_generated_tokens == 0) core.step();
  CHECK_EQ(num_with("\"state\":\"waiting\",\"tokens\":0,"), 5);
  while (num_with("finished\",\"tokens\":0,") < 4 && core.has_work()) core.step();
  core.step();
  CHECK_EQ(num_with("\"tokens\":10"), 2);  // those that run now
  while (core.has_work()) core.step();
  CHECK_EQ(core.take_finished().at(0).samples.size(), 7u);
}

TEST_MAIN()
