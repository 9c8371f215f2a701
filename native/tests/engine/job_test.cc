// Scheduling for the whole job, counted in steps and computed tokens: nothing here depends on time.
#include <map>
#include <memory>
#include <numeric>
#include <string>

#include "engine/engine_core.h"
#include "engine/naive_engine.h"
#include "engine/random_requests.h"
#include "executor/fake_executor.h"
#include "testing.h"

using namespace deepinfer;
using namespace deepinfer::testing;

namespace {

Request job_request(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

EngineStats run_job(const std::vector<Request>& requests, EngineConfig config) {
  FakeExecutor executor({});
  ThreadPool pool(1);
  config.num_blocks = {4096};
  config.debug_checks = true;
  EngineCore core(executor, pool, odd_tokens(256), config);
  for (const Request& request : requests) {
    core.check_request(request);
    core.add(Request(request));
  }
  size_t num_done = 0;
  while (core.has_work()) {
    core.step();
    num_done += core.take_finished().size();
  }
  CHECK_EQ(num_done, requests.size());
  return core.stats();
}

}  // namespace

TEST(the_longest_rows_of_a_group_do_not_run_alone_at_its_end) {
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 12; ++id) requests.push_back(job_request(id, {1, static_cast<int32_t>(id)}, 10));
  requests.push_back(job_request(12, {1, 2, 3}, 40));
  // Four seats, 160 tokens: 40 steps at best.
  const EngineStats sorted = run_job(requests, {.max_num_seqs = 4});
  CHECK_EQ(sorted.num_steps, 40);
  const EngineStats by_arrival = run_job(requests, {.max_num_seqs = 4, .look_ahead = 1});
  CHECK_EQ(by_arrival.num_steps, 70);  // three rounds of four, then the long one alone
  CHECK_EQ(sorted.num_generated_tokens, by_arrival.num_generated_tokens);
}

TEST(samples_that_take_turns_count_as_longer) {
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 8; ++id) requests.push_back(job_request(id, {1, static_cast<int32_t>(id)}, 10));
  requests.push_back(job_request(8, {1, 2, 3}, 10));
  requests.back().num_samples = 8;
  const EngineStats sorted = run_job(requests, {.max_num_seqs = 4});
  const EngineStats by_arrival = run_job(requests, {.max_num_seqs = 4, .look_ahead = 1});
  CHECK_EQ(sorted.num_generated_tokens, 160);
  CHECK(sorted.num_steps <= by_arrival.num_steps);
}

TEST(a_row_is_passed_by_those_of_its_group_only) {
  std::vector<Request> requests;
  requests.push_back(job_request(0, {1}, 5));
  requests.push_back(job_request(1, {2}, 5));
  for (uint64_t id = 2; id < 10; ++id) requests.push_back(job_request(id, {3, static_cast<int32_t>(id)}, 9));
  FakeExecutor executor({});
  ThreadPool pool(1);
  EngineCore core(executor, pool, odd_tokens(256), {.max_num_seqs = 1, .num_blocks = {256}, .look_ahead = 4});
  for (const Request& request : requests) core.add(Request(request));
  std::vector<uint64_t> order;
  while (core.has_work()) {
    core.step();
    for (const Completion& completion : core.take_finished()) order.push_back(completion.id);
  }
  CHECK(order == (std::vector<uint64_t>{2, 3, 0, 1, 4, 5, 6, 7, 8, 9}));
}

TEST(a_shared_header_is_computed_once) {
  std::vector<int32_t> header(150);
  std::iota(header.begin(), header.end(), 1);
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 100; ++id) {
    std::vector<int32_t> prompt = header;
    prompt.insert(prompt.end(), 5, 200 + static_cast<int32_t>(id) % 50);
    prompt.push_back(static_cast<int32_t>(id));
    requests.push_back(job_request(id, prompt, 1 + static_cast<int32_t>(id) % 3));
  }
  const int32_t block_tokens = FakeExecutor({}).cache_groups()[0].block_tokens;
  const int64_t shared = 150 / block_tokens * block_tokens;  // whole blocks
  for (const int32_t chunk : {16, 64, 512}) {
    const EngineStats stats = run_job(requests, {.max_num_seqs = 64, .prefill_chunk = chunk});
    CHECK_EQ(stats.num_prompt_tokens, 156 + 99 * (156 - shared));
    CHECK_EQ(stats.num_cached_tokens, 99 * shared);
  }
}

// What a step samples after a stop string that was found beside it is in no text, no count and no score.
TEST(texts_that_come_late_change_nothing) {
  const std::shared_ptr<const TokenTable> tokens = odd_tokens(256);
  const auto run = [&](bool is_async, int32_t min_rows, EngineStats& stats) {
    FakeExecutor executor({});
    ThreadPool pool(2);
    EngineCore core(executor, pool, tokens,
                    {.max_num_seqs = 8,
                     .num_blocks = {4096},
                     .async_scheduling = is_async,
                     .async_min_rows = min_rows,
                     .debug_checks = true});
    for (uint64_t id = 0; id < 40; ++id) {
      Request request = job_request(id, {1, static_cast<int32_t>(id)}, 30);
      request.sampling.stop = {"a", "e", "t"};
      request.sampling.min_tokens = static_cast<int32_t>(id % 3) * 2;
      request.sampling.top_logprobs = id % 2 == 0 ? 1 : -1;
      request.num_samples = 1 + static_cast<int32_t>(id % 4);
      request.wants_token_times = true;
      core.add(std::move(request));
    }
    std::map<uint64_t, std::string> rows;
    while (core.has_work()) {
      core.step();
      for (const Completion& completion : core.take_finished()) {
        rows[completion.id] = print(completion);
        for (const SampleResult& sample : completion.samples)
          CHECK_EQ(sample.token_times.size(), sample.tokens.size());
      }
    }
    stats = core.stats();
    return rows;
  };
  EngineStats at_once, late, beside;
  const std::map<uint64_t, std::string> expected = run(false, 0, at_once);
  CHECK_EQ(expected.size(), 40u);
  CHECK(run(true, 1000, late) == expected);
  CHECK(run(true, 0, beside) == expected);
  CHECK_EQ(late.num_generated_tokens, at_once.num_generated_tokens);
  CHECK_EQ(beside.num_generated_tokens, at_once.num_generated_tokens);
  CHECK(late.num_steps > at_once.num_steps);  // some stop strings were found a step later
  CHECK_EQ(beside.num_steps, late.num_steps);
}

TEST_MAIN()
