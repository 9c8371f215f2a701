#include "deepinfer/engine.h"

#include <map>
#include <string>

#include "executor/fake_executor.h"
#include "testing.h"

using namespace deepinfer;

namespace {

std::shared_ptr<const TokenTable> letters(int32_t vocab_size) {
  std::vector<std::string> bytes;
  for (int32_t t = 0; t < vocab_size; ++t) bytes.emplace_back(1, static_cast<char>('a' + t % 26));
  return std::make_shared<TokenTable>(bytes, std::vector<bool>(bytes.size(), false));
}

Request request(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  Request r;
  r.id = id;
  r.prompt = std::move(prompt);
  r.sampling.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  return r;
}

}  // namespace

TEST(answers_every_request) {
  FakeExecutor executor({});
  ThreadPool pool(1);
  EngineConfig config;
  config.num_blocks = {64};
  config.debug_checks = true;
  Engine engine(executor, pool, letters(256), config);
  for (uint64_t id = 0; id < 20; ++id) {
    Request r = request(id, {1, 2, static_cast<int32_t>(id)}, 5);
    CHECK(engine.try_submit(r));
  }
  std::map<uint64_t, Completion> done;
  while (done.size() < 20)
    for (Completion& c : engine.poll(100, 1.0)) done[c.id] = std::move(c);
  for (const auto& [id, c] : done) {
    CHECK_EQ(c.error, "");
    CHECK_EQ(c.samples.size(), 1u);
    CHECK_EQ(c.samples[0].tokens.size(), 5u);
    CHECK_EQ(c.samples[0].text.size(), 5u);
  }
  engine.check_integrity();
  CHECK_EQ(engine.stats().num_blocks_used, 0);
}

TEST_MAIN()
