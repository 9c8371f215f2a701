// The promise of the engine, on an executor whose logits are a hash of the history as the cache gives it
// back: whatever the schedule, every request's tokens, text and scores are those of the naive engine, bit
// for bit.
#include <cstdlib>
#include <map>

#include "engine/engine_core.h"
#include "engine/naive_engine.h"
#include "engine/random_requests.h"
#include "executor/fake_executor.h"
#include "support/sanitized.h"
#include "testing.h"

using namespace deepinfer;
using namespace deepinfer::testing;

namespace {

constexpr int32_t kContext = 56;  // near enough for requests to run into it

FakeExecutorConfig fake_config(Draw& draw) {
  FakeExecutorConfig config;
  config.vocab_size = 40;
  config.max_positions = 200;
  config.seed = draw.bits();
  config.eos_token_ids = {0};
  config.eos_bias = 1.0f;
  config.logit_scale = draw.pick(std::array{1.0f, 4.0f});
  config.strip_rows = draw.between(1, 9);
  if (draw.one_in(4)) config.nan_token = 17;
  const CacheGroupSpec small{"small", CacheKind::kPaged, draw.pick(std::array{1, 3, 4, 16}), 0};
  config.groups = {small};
  if (draw.one_in(3))
    config.groups.push_back(
        {"large", CacheKind::kPaged, small.block_tokens * draw.between(1, 3) + draw.below(2), 0});
  if (draw.one_in(4)) config.groups.push_back({"state", CacheKind::kSequence, 1, 0});
  return config;
}

// Pools from "one sequence fits" to "all fit".
EngineConfig engine_config(Draw& draw, const std::vector<CacheGroupSpec>& groups) {
  EngineConfig config;
  config.max_num_seqs = draw.pick(std::array{1, 2, 3, 17, 64});
  config.prefill_chunk = draw.pick(std::array{1, 3, 16, 512});
  config.max_step_tokens = draw.pick(std::array{1, 5, 40, 600});
  config.max_context = kContext;
  config.async_scheduling = draw.one_in(2);
  config.tune_steps = draw.one_in(2);
  config.async_min_rows = draw.pick(std::array{0, 4, 16});
  config.look_ahead = draw.pick(std::array{1, 3, 256});
  config.prefix_cache = draw.one_in(2);
  config.jump_forward = draw.one_in(2);
  config.ask_above = draw.pick(std::array{0, 1, 2, 512});
  config.forcing_seconds = draw.one_in(3) ? 2e-7 : 1;  // cut short anywhere
  config.debug_checks = true;
  config.eos_token_ids = {0};
  if (draw.one_in(3)) config.debug_preempt_every = draw.between(1, 7);
  const int32_t num_fitting = draw.pick(std::array{1, 1, 2, 5, 100});
  for (const CacheGroupSpec& group : groups) {
    const int32_t blocks = (kContext + group.block_tokens - 1) / group.block_tokens;
    config.num_blocks.push_back(group.kind == CacheKind::kPaged ? blocks * num_fitting + draw.below(3)
                                                                : num_fitting);
  }
  return config;
}

using Rows = std::map<int32_t, std::vector<float>>;

struct Expected {
  std::string text;
  Rows rows;  // that reached on_logits
};

// Returns false when something differs.
bool check_schedule(uint64_t seed) {
  Draw draw(seed);
  const FakeExecutorConfig fake = fake_config(draw);
  const std::shared_ptr<const TokenTable> tokens = odd_tokens(fake.vocab_size);
  FakeExecutor naive_executor(fake), executor(fake);
  NaiveModel model(naive_executor, 200);
  const NaiveEngine naive{model, tokens, kContext, {0}};

  const RequestRange range;
  const auto group = std::make_shared<DfaGroup>();
  std::vector<Request> requests;
  std::map<uint64_t, Expected> expected;
  std::map<uint64_t, Rows> seen;
  bool ok = true;
  for (uint64_t id = 0; id < 10; ++id) {
    Request request = random_request(draw, range, id * 7, group);
    Expected& want = expected[request.id];
    request.on_logits = [&](int32_t position, const float* row, int32_t size) {
      want.rows[position].assign(row, row + size);
    };
    want.text = print(naive.run(request));
    request.on_logits = [&, id = request.id](int32_t position, const float* row, int32_t size) {
      ok =
          ok && seen[id].emplace(position, std::vector<float>(row, row + size)).second;  // each position once
    };
    requests.push_back(std::move(request));
  }

  ThreadPool pool(1 + static_cast<int>(seed % 3));
  EngineCore core(executor, pool, tokens, engine_config(draw, fake.groups));
  std::vector<uint64_t> aborted;
  std::vector<Completion> done;
  size_t next = 0;
  for (int steps = 0; done.size() < requests.size() && steps < 100000; ++steps) {
    while (next < requests.size() && (!core.has_work() || draw.one_in(3))) {
      core.check_request(requests[next]);
      core.add(Request(requests[next++]));
    }
    if (draw.one_in(60) && next > 0) {
      aborted.push_back(requests[static_cast<size_t>(draw.below(static_cast<int32_t>(next)))].id);
      core.abort(aborted.back());
    }
    if (core.has_work()) core.step();
    for (Completion& completion : core.take_finished()) done.push_back(std::move(completion));
  }
  core.check_integrity();
  ok = ok && done.size() == requests.size() && core.stats().num_blocks_used == 0;
  for (const Completion& completion : done) {
    const bool was_aborted =
        !completion.samples.empty() && std::ranges::any_of(completion.samples, [](const SampleResult& s) {
          return s.finish_reason == FinishReason::kAborted;
        });
    if (was_aborted || (std::ranges::count(aborted, completion.id) > 0 && completion.samples.empty()))
      continue;
    const Expected& want = expected[completion.id];
    if (print(completion) != want.text) {
      std::cerr << "seed " << seed << "\nwanted " << want.text << "\ngot    " << print(completion) << " "
                << completion.error << "\n";
      ok = false;
    }
    if (!completion.error.empty()) continue;
    for (const auto& [position, row] : want.rows)
      ok = ok &&
           std::memcmp(row.data(), seen[completion.id][position].data(), row.size() * sizeof(float)) == 0;
    ok = ok && seen[completion.id].size() == want.rows.size();
  }
  return ok;
}

}  // namespace

// DEEPINFER_TEST_ROUNDS: more schedules for long runs.
TEST(any_schedule_gives_the_naive_answers) {
  const char* rounds = std::getenv("DEEPINFER_TEST_ROUNDS");
  const uint64_t num_schedules = rounds != nullptr ? std::strtoull(rounds, nullptr, 10)
                                 : kIsSanitized    ? 150
                                                   : 1500;
  int num_wrong = 0;
  for (uint64_t seed = 0; seed < num_schedules && num_wrong < 3; ++seed)
    if (!check_schedule(seed)) {
      std::cerr << "schedule " << seed << " differs\n";
      ++num_wrong;
    }
  CHECK_EQ(num_wrong, 0);
}

TEST_MAIN()
