// The engine's core under any sequence of arrivals, steps, aborts and device failures, with pools of any
// size: blocks are recounted after every step, every request completes once, and nothing stays behind.
// Input: sizes of everything, then operations, one or a few bytes each.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deepinfer/status.h"
#include "engine/engine_core.h"
#include "executor/fake_executor.h"
#include "fuzz.h"

using namespace deepinfer;

namespace {

constexpr int32_t kVocab = 12, kContext = 40;

int32_t between(fuzz::Reader& reader, int32_t low, int32_t high) {
  return low + reader.byte() % (high - low + 1);
}

FakeExecutorConfig read_executor(fuzz::Reader& reader) {
  FakeExecutorConfig config;
  config.vocab_size = kVocab;
  config.max_positions = kContext;
  const uint8_t flags = reader.byte();
  config.groups = {{"a", CacheKind::kPaged, between(reader, 1, 8), 0}};
  if (flags & 1) config.groups.push_back({"b", CacheKind::kPaged, between(reader, 1, 8), 0});
  if (flags & 2) config.groups.push_back({"c", CacheKind::kSequence, 1, 0});
  if (flags & 4) config.fail_at_step = reader.byte();
  if (flags & 8) config.nan_token = 3;
  return config;
}

EngineConfig read_engine(fuzz::Reader& reader, const std::vector<CacheGroupSpec>& groups) {
  EngineConfig config;
  const uint8_t flags = reader.byte();
  config.max_num_seqs = between(reader, 1, 9);
  config.max_step_tokens = between(reader, 1, 40);
  config.prefill_chunk = between(reader, 1, 20);
  config.prefix_cache = (flags & 1) != 0;
  if (flags & 2) config.debug_preempt_every = between(reader, 1, 5);
  config.debug_checks = true;
  config.eos_token_ids = {0};
  for (const CacheGroupSpec& group : groups)
    config.num_blocks.push_back(group.kind == CacheKind::kPaged ? between(reader, 1, 60)
                                                                : between(reader, 1, 9));
  return config;
}

Request read_request(fuzz::Reader& reader, uint64_t id) {
  Request request;
  request.id = id;
  const uint8_t flags = reader.byte();
  const int32_t length = between(reader, 0, 30);  // 0 is refused
  for (int32_t i = 0; i < length; ++i) request.prompt.push_back(flags & 1 ? 1 : reader.byte() % kVocab);
  request.sampling.max_tokens = between(reader, 0, 20);
  request.sampling.ignore_eos = (flags & 2) != 0;
  if (flags & 4) request.num_samples = between(reader, 1, 5);
  if (flags & 8) request.prompt_logprobs = 0;
  if (flags & 16) {
    request.score_begin = between(reader, 0, 20);
    request.score_end = between(reader, 0, 31);
    request.on_logits = [](int32_t, const float*, int32_t) {};
  }
  if (flags & 32) request.sampling.temperature = 0;
  request.seed = reader.byte();
  return request;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1500) return 0;
  fuzz::Reader reader(data, size);
  static ThreadPool pool(1);
  static const auto table =
      std::make_shared<TokenTable>(std::vector<std::string>(kVocab, "x"), std::vector<bool>(kVocab, false));
  FakeExecutor executor(read_executor(reader));
  EngineCore core(executor, pool, table, read_engine(reader, executor.cache_groups()));
  std::map<uint64_t, int> num_completions;
  const auto take = [&] {
    for (const Completion& completion : core.take_finished()) {
      FUZZ_CHECK(++num_completions.at(completion.id) == 1);
      FUZZ_CHECK(!completion.error.empty() || completion.num_prompt_tokens > 0);
    }
  };
  uint64_t next_id = 0;
  while (!reader.rest().empty()) {
    const uint8_t operation = reader.byte();
    if (operation % 4 == 0) {
      Request request = read_request(reader, next_id);
      try {
        core.check_request(request);
      } catch (const Error& e) {
        FUZZ_CHECK(e.code() == ErrorCode::kBadRequest && fuzz::is_message(e.what()));
        continue;
      }
      num_completions[next_id++] = 0;
      core.add(std::move(request));
    } else if (operation == 1) {
      core.abort(reader.byte());
    } else if (operation == 2) {
      core.abort_all();
    } else if (core.has_work()) {
      core.step();
    }
    take();
  }
  for (int steps = 0; core.has_work(); ++steps) {
    FUZZ_CHECK(steps < 20000);  // tiny budgets, many samples: far more than any needs
    core.step();
    take();
  }
  for (const auto& [id, count] : num_completions) FUZZ_CHECK(count == 1);
  FUZZ_CHECK(core.stats().num_blocks_used == 0);
  core.check_integrity();
  return 0;
}
