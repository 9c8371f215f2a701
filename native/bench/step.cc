// Speed of whole steps of a model: prefill and decode at several batch sizes, tokens per CPU second.
//
//   bench_step MODEL [PRECISION [ISA [CONTEXT [THREADS [CASE]]]]]      CASE: "prefill", "decode 8", ...
// PRECISION may name a threshold: precise:3.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench.h"
#include "deepinfer/status.h"
#include "executor/cpu_executor.h"

namespace {

using namespace deepinfer;

constexpr int kTokens = 1000;  // token ids below this

class NoSink final : public LogitsSink {
 public:
  void consume(int, int, const float* logits) override { first = logits[0]; }
  float first = 0;
};

// A step of `num_sequences` with `count` new tokens each after `computed` ones, in blocks for `context`
// tokens each; logits of the last token each.
Batch make_batch(int num_sequences, int count, int computed, int context, int block_tokens) {
  Batch batch;
  BlockTables tables;
  tables.offsets.push_back(0);
  const int blocks_each = (context + block_tokens - 1) / block_tokens;
  for (int s = 0; s < num_sequences; ++s) {
    batch.sequences.push_back({batch.num_tokens(), count, computed});
    for (int i = 0; i < count; ++i) {
      batch.tokens.push_back((s * 7919 + (computed + i) * 104729) % kTokens);
      batch.positions.push_back(computed + i);
      batch.token_sequences.push_back(s);
    }
    batch.logit_tokens.push_back(batch.num_tokens() - 1);
    for (int b = 0; b < blocks_each; ++b) tables.blocks.push_back(s * blocks_each + b);
    tables.offsets.push_back(static_cast<int32_t>(tables.blocks.size()));
  }
  batch.groups.push_back(tables);
  return batch;
}

int run(int argc, char** argv) {
  const std::string path = argv[1];
  CpuExecutorConfig config;
  if (argc > 2) config.precision = argv[2];
  if (const size_t at = config.precision.find(':'); at != std::string::npos) {
    config.residual_threshold = std::strtof(config.precision.c_str() + at + 1, nullptr);
    config.precision.resize(at);
  }
  if (argc > 3) config.isa = argv[3];
  const int context = argc > 4 ? std::atoi(argv[4]) : 150;
  const int threads = argc > 5 ? std::atoi(argv[5]) : 1;
  const std::string only = argc > 6 ? argv[6] : "";
  ThreadPool pool(threads);
  const double start = bench::cpu_seconds();
  CpuExecutor executor(TensorFile::open(path), pool, config);
  std::printf("load and pack %.2f CPU s, %s, %s, %d thread(s), context %d\n", bench::cpu_seconds() - start,
              executor.isa(), config.precision.c_str(), threads, context);
  executor.reserve(512);
  const int32_t num_blocks[] = {64 * ((context + 1 + config.block_tokens) / config.block_tokens) + 16};
  executor.allocate_cache(num_blocks);
  NoSink sink;
  const auto report = [&](const char* what, int sequences, int count, int computed) {
    if (std::string(what).find(only) == std::string::npos) return;
    const Batch batch = make_batch(sequences, count, computed, computed + count, config.block_tokens);
    const double seconds = bench::best_seconds(12, 0.5, [&] { executor.forward(batch, sink); });
    std::printf("%-10s %7.2f ms  %8.0f tok per CPU s\n", what, seconds * 1e3, sequences * count / seconds);
  };
  report("prefill512", 1, 512, 0);
  if (only.starts_with("prefill")) return 0;
  for (int done = 0; done < context; done += 8) {  // fill the blocks that decoding will read
    executor.forward(make_batch(64, std::min(8, context - done), done, context + 1, config.block_tokens),
                     sink);
  }
  report("decode 1", 1, 1, context);
  report("decode 4", 4, 1, context);
  report("decode 8", 8, 1, context);
  report("decode 16", 16, 1, context);
  report("decode 32", 32, 1, context);
  report("decode 64", 64, 1, context);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_step MODEL [PRECISION [ISA [CONTEXT [THREADS [CASE]]]]]\n");
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
