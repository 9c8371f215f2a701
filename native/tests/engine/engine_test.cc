// The loop thread and its queues. What the answers are is the business of invariance_test.
#include "deepinfer/engine.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "deepinfer/status.h"
#include "engine/random_requests.h"
#include "executor/fake_executor.h"
#include "testing.h"

using namespace deepinfer;
using namespace deepinfer::testing;

namespace {

struct Rig {
  explicit Rig(FakeExecutorConfig fake = {}, EngineConfig config = {})
      : executor(std::move(fake)),
        pool(2),
        engine(executor, pool, odd_tokens(256), checked(std::move(config))) {}

  static EngineConfig checked(EngineConfig config) {
    if (config.num_blocks.empty()) config.num_blocks = {256};
    config.debug_checks = true;
    return config;
  }

  FakeExecutor executor;
  ThreadPool pool;
  Engine engine;
};

Request request(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  Request r;
  r.id = id;
  r.prompt = std::move(prompt);
  r.sampling.max_tokens = max_tokens;
  return r;
}

using Completions = std::map<uint64_t, Completion>;

void poll_into(Engine& engine, Completions& done) {
  for (Completion& c : engine.poll(100, 0.5)) {
    const uint64_t id = c.id;
    CHECK(done.emplace(id, std::move(c)).second);
  }
}

Completions run_all(Engine& engine, std::vector<Request> requests) {
  Completions done;
  size_t next = 0;
  while (done.size() < requests.size()) {
    while (next < requests.size() && engine.try_submit(requests[next])) ++next;
    poll_into(engine, done);
  }
  return done;
}

}  // namespace

TEST(answers_every_request) {
  Rig rig;
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 50; ++id) requests.push_back(request(id, {1, 2, static_cast<int32_t>(id)}, 5));
  for (const auto& [id, c] : run_all(rig.engine, std::move(requests))) {
    CHECK_EQ(c.error, "");
    CHECK_EQ(c.samples.size(), 1u);
    CHECK_EQ(c.samples[0].tokens.size(), 5u);
    CHECK(c.first_token_seconds >= c.queue_seconds && c.total_seconds >= c.first_token_seconds);
  }
  rig.engine.check_integrity();
  CHECK_EQ(rig.engine.stats().num_blocks_used, 0);
  CHECK_EQ(rig.engine.stats().num_generated_tokens, 250);
  CHECK_EQ(rig.engine.stats().num_prompt_tokens, 150);
}

TEST(token_times_count_steps_from_the_submission) {
  Rig rig;
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 6; ++id) {
    requests.push_back(request(id, {1, 2, static_cast<int32_t>(id)}, 5));
    requests.back().wants_token_times = id % 2 == 0;
  }
  for (const auto& [id, c] : run_all(rig.engine, std::move(requests))) {
    const std::vector<double>& times = c.samples[0].token_times;
    CHECK_EQ(times.size(), id % 2 == 0 ? 5u : 0u);
    CHECK(std::ranges::is_sorted(times));
    CHECK(c.submit_time > 0);
    if (times.empty()) continue;
    CHECK(times[0] >= c.submit_time + c.queue_seconds);
    CHECK(times[4] <= c.submit_time + c.total_seconds);
  }
}

TEST(a_full_queue_pushes_back_and_keeps_the_request) {
  FakeExecutorConfig slow;
  slow.seconds_per_token = 0.001;
  Rig rig(slow, {.max_num_seqs = 1, .max_waiting = 2});
  std::vector<Request> requests;
  int num_refused = 0;
  Completions done;
  for (uint64_t id = 0; id < 12; ++id) {
    Request r = request(id, {1, 2, 3}, 4);
    while (!rig.engine.try_submit(r)) {
      CHECK_EQ(r.prompt.size(), 3u);
      ++num_refused;
      poll_into(rig.engine, done);
    }
  }
  while (done.size() < 12) poll_into(rig.engine, done);
  CHECK(num_refused > 0);
}

TEST(the_loop_waits_when_nobody_takes_the_completions) {
  Rig rig({}, {.max_num_seqs = 1, .max_finished = 3});
  for (uint64_t id = 0; id < 20; ++id) {
    Request r = request(id, {5}, 1);
    CHECK(rig.engine.try_submit(r));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(rig.engine.stats().num_steps <= 4);
  Completions done;
  while (done.size() < 20) poll_into(rig.engine, done);
}

TEST(abort_completes_a_request_once) {
  FakeExecutorConfig slow;
  slow.seconds_per_token = 0.001;
  Rig rig(slow);
  for (uint64_t id = 0; id < 4; ++id) {
    Request r = request(id, {1}, 1500);
    r.sampling.ignore_eos = true;
    r.num_samples = 2;
    CHECK(rig.engine.try_submit(r));
  }
  rig.engine.abort(2);
  rig.engine.abort(77);
  Completions done;
  while (done.empty()) poll_into(rig.engine, done);
  CHECK_EQ(done.begin()->first, 2u);
  CHECK_EQ(done[2].samples.size(), 2u);
  CHECK(done[2].samples[0].finish_reason == FinishReason::kAborted);
  rig.engine.abort_all();
  while (done.size() < 4) poll_into(rig.engine, done);
  rig.engine.check_integrity();
  CHECK_EQ(rig.engine.stats().num_blocks_used, 0);
  Request again = request(2, {1}, 1);  // the id is free again
  CHECK(rig.engine.try_submit(again));
}

TEST(live_ids_are_unique) {
  FakeExecutorConfig slow;
  slow.seconds_per_token = 0.01;
  Rig rig(slow);
  Request a = request(1, {1}, 100), b = request(1, {1}, 100);
  CHECK(rig.engine.try_submit(a));
  CHECK_THROWS(Error, rig.engine.try_submit(b));
}

TEST(stop_ends_a_busy_engine) {
  FakeExecutorConfig slow;
  slow.seconds_per_token = 0.001;
  Rig rig(slow);
  Request r = request(1, {1}, 1500);
  CHECK(rig.engine.try_submit(r));
  rig.engine.stop();
  rig.engine.stop();
  CHECK(rig.engine.poll(1, 10).empty());  // at once
  Request late = request(2, {1}, 1);
  CHECK_THROWS(Error, rig.engine.try_submit(late));
}

// Random failures of the device and of single rows: everybody gets an answer or an error, no block is lost.
TEST(failures_end_only_what_they_hit) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Draw draw(seed);
    FakeExecutorConfig fake;
    fake.fail_at_step = draw.below(30);
    fake.num_failing_steps = draw.between(1, 2);
    fake.nan_token = 33;
    Rig rig(fake, {.max_num_seqs = draw.between(1, 20), .num_blocks = {24}});
    std::vector<Request> requests;
    for (uint64_t id = 0; id < 40; ++id) {
      requests.push_back(request(id, {draw.between(1, 50), draw.between(1, 50)}, draw.between(1, 20)));
      requests.back().sampling.logit_bias = {{33, -100.0f}};
    }
    for (const auto& [id, c] : run_all(rig.engine, requests)) {
      const bool has_nan = std::ranges::count(requests[id].prompt, 33) > 0;
      const bool failed_device = c.error.find("device failed") != std::string::npos;
      CHECK_EQ(c.error_retryable, failed_device);
      if (!failed_device) CHECK_EQ(!c.error.empty(), has_nan);
      if (!c.error.empty()) CHECK(c.samples.at(0).finish_reason == FinishReason::kError);
    }
    rig.engine.check_integrity();
    CHECK_EQ(rig.engine.stats().num_blocks_used, 0);
  }
}

TEST(a_device_that_stays_broken_is_reported_by_poll) {
  FakeExecutorConfig fake;
  fake.fail_at_step = 2;
  fake.num_failing_steps = 1000;
  Rig rig(fake, {.max_num_seqs = 2});
  for (uint64_t id = 0; id < 20; ++id) {
    Request r = request(id, {1}, 10);
    CHECK(rig.engine.try_submit(r));
  }
  size_t num_done = 0;
  std::string what;
  try {
    while (true) num_done += rig.engine.poll(1, 5).size();
  } catch (const Error& e) {
    what = e.what();
  }
  CHECK(what.find("device failed") != std::string::npos);
  CHECK_EQ(num_done, 16u);  // each failed alone, and then it was clear that it is not the requests
  Request late = request(100, {1}, 1);
  CHECK_THROWS(Error, rig.engine.try_submit(late));
}

TEST(a_score_callback_that_throws_ends_its_request) {
  Rig rig;
  Request bad = request(1, {1, 2, 3, 4}, 3), good = request(2, {1, 2, 3, 4}, 3);
  std::atomic<int> calls = 0;
  bad.score_begin = good.score_begin = 1;
  bad.score_end = good.score_end = 5;
  bad.on_logits = [&](int32_t, const float*, int32_t) {
    ++calls;
    throw std::runtime_error("disk full");
  };
  good.on_logits = [](int32_t, const float*, int32_t) {};
  const Completions done = run_all(rig.engine, {bad, good});
  CHECK(done.at(1).error.find("disk full") != std::string::npos);
  CHECK_EQ(done.at(2).error, "");
  CHECK_EQ(calls.load(), 1);
}

TEST(threads_may_submit_poll_and_abort_at_once) {
  Rig rig({}, {.max_num_seqs = 5, .num_blocks = {140}, .max_waiting = 8, .max_finished = 4});
  constexpr uint64_t kPerThread = 60;
  const auto submit = [&](uint64_t first) {
    Draw draw(first);
    for (uint64_t id = first; id < first + kPerThread; ++id) {
      Request r = request(id, {draw.between(1, 99)}, draw.between(1, 12));
      while (!rig.engine.try_submit(r)) std::this_thread::sleep_for(std::chrono::microseconds(200));
      if (draw.one_in(5)) rig.engine.abort(id - static_cast<uint64_t>(draw.below(3)));
      if (draw.one_in(9)) rig.engine.check_integrity();
    }
  };
  std::thread a(submit, 0), b(submit, 1000);
  Completions done;
  while (done.size() < 2 * kPerThread) poll_into(rig.engine, done);
  a.join();
  b.join();
  CHECK_EQ(rig.engine.stats().num_blocks_used, 0);
}

TEST(requests_that_can_never_run_are_refused_with_the_reason) {
  Rig rig({}, {.max_context = 64, .num_blocks = {3}});
  const auto why = [&](Request r) -> std::string {
    try {
      rig.engine.try_submit(r);
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::kBadRequest);
      return e.what();
    }
    return "";
  };
  const auto says = [](const std::string& text, const char* word) {
    return text.find(word) != std::string::npos;
  };
  CHECK(says(why(request(1, {}, 1)), "no tokens"));
  CHECK(says(why(request(1, {256}, 1)), "vocabulary of 256"));
  CHECK(says(why(request(1, {-1}, 1)), "-1"));
  CHECK(says(why(request(1, {1}, 0)), "nothing to do"));
  CHECK(says(why(request(1, std::vector<int32_t>(64, 1), 1)), "context limit is 64"));
  CHECK(says(why(request(1, {1}, 60)), "lower max_tokens (60) or raise kv_cache_bytes"));
  Request none = request(1, {1}, 1);
  none.num_samples = 0;
  CHECK(says(why(none), "n is 0"));
  Request scores = request(1, {1, 2}, 0);
  scores.score_begin = 1;
  scores.score_end = 4;
  CHECK(says(why(scores), "allows 1 to 2"));
  scores.score_begin = 0;
  scores.score_end = 1;
  CHECK(says(why(scores), "positions 0 to 0"));
  Request whole = request(1, std::vector<int32_t>(48, 1), 0);  // exactly fits when nothing is generated
  whole.prompt_logprobs = 0;
  CHECK_EQ(why(whole), "");
}

TEST(scores_of_a_single_token_are_an_empty_list) {
  Rig rig;
  Request r = request(1, {5}, 0);
  r.prompt_logprobs = 2;
  const Completions done = run_all(rig.engine, {r});
  CHECK_EQ(done.at(1).error, "");
  CHECK(done.at(1).prompt_logprobs.empty() && done.at(1).samples.empty());
}

// A device that computes its first step when told to.
class GatedExecutor : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  void forward(const Batch& batch, LogitsSink& sink) override {
    has_begun = true;
    has_begun.notify_all();
    is_open.wait(false);
    FakeExecutor::forward(batch, sink);
  }
  void open() {
    is_open = true;
    is_open.notify_all();
  }
  std::atomic<bool> has_begun = false, is_open = false;
};

struct GatedRig {
  GatedRig() : engine(executor, pool, odd_tokens(256), config()) {}
  ~GatedRig() { executor.open(); }
  static EngineConfig config() {
    EngineConfig config;
    config.max_num_seqs = 2;
    config.num_blocks = {64};
    return config;
  }
  GatedExecutor executor{FakeExecutorConfig{}};
  ThreadPool pool{1};
  Engine engine;
};

TEST(what_waits_can_be_given_up_while_the_rest_goes_on) {
  GatedRig rig;
  for (uint64_t id = 0; id < 10; ++id) {
    Request r = request(id, {1, static_cast<int32_t>(id)}, 3);
    CHECK(rig.engine.try_submit(r));
    if (id == 1) rig.executor.has_begun.wait(false);  // the first, perhaps both, run
  }
  rig.engine.abort_unstarted();
  rig.executor.open();
  Completions done;
  while (done.size() < 10) poll_into(rig.engine, done);
  CHECK(done[0].samples[0].finish_reason == FinishReason::kLength);
  for (uint64_t id = 2; id < 10; ++id) CHECK(done[id].samples[0].finish_reason == FinishReason::kAborted);
  rig.engine.check_integrity();
  Request late = request(20, {1}, 1);  // it is not a lasting state
  CHECK(rig.engine.try_submit(late));
  while (done.size() < 11) poll_into(rig.engine, done);
  CHECK(done[20].samples[0].finish_reason == FinishReason::kLength);
}

TEST(an_engine_in_a_hung_step_can_be_looked_at_and_left) {
  GatedRig rig;
  Request r = request(7, {1, 2, 3}, 4);
  CHECK(rig.engine.try_submit(r));
  rig.executor.has_begun.wait(false);
  const std::string about = rig.engine.describe();
  CHECK(about.find("\"computing\":true") != std::string::npos);
  CHECK(about.find("\"id\":7") != std::string::npos);
  CHECK(about.find("\"step_tokens\":3") != std::string::npos);
  rig.engine.check_integrity();
  CHECK(!rig.engine.try_stop(0.01));
  rig.executor.open();
  CHECK(rig.engine.try_stop(60));
}

TEST_MAIN()
