// The llama family through the CPU executor: right answers against double precision, and the same bits
// however a run is cut.
#include <cmath>
#include <cstring>
#include <random>

#include "deepinfer/status.h"
#include "executor/cpu_executor.h"
#include "kernels/dispatch.h"
#include "support/llama_reference.h"
#include "support/run_sequences.h"
#include "support/tiny_llama.h"
#include "testing.h"

using namespace deepinfer;
using namespace deepinfer::testing;

namespace {

Sequence random_tokens(int count, uint32_t seed) {
  std::mt19937 rng(seed);
  Sequence tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng() % 259);
  return tokens;
}

CpuExecutorConfig config(const std::string& precision, const std::string& kv = "f16",
                         const std::string& isa = "") {
  CpuExecutorConfig c;
  c.precision = precision;
  c.residual_threshold = 1.5f;  // of so small a model about half of the blocks have residuals
  c.kv_dtype = kv;
  c.isa = isa;
  c.two_parts_rows = 6;
  c.two_parts_bytes = 0;
  return c;
}

std::vector<Logits> run(const std::shared_ptr<const TensorFile>& file, const CpuExecutorConfig& c,
                        int threads, const std::vector<Sequence>& sequences, const Cut& cut) {
  ThreadPool pool(threads);
  CpuExecutor executor(file, pool, c);
  return run_sequences(executor, sequences, cut);
}

bool same_bits(const std::vector<Logits>& a, const std::vector<Logits>& b) {
  if (a.size() != b.size()) return false;
  for (size_t s = 0; s < a.size(); ++s) {
    if (a[s].size() != b[s].size() || std::memcmp(a[s].data(), b[s].data(), a[s].size() * sizeof(float)) != 0)
      return false;
  }
  return true;
}

// Root mean square of the difference over that of the reference.
double relative_error(const Logits& have, const Doubles& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (have[i] - want[i]) * (have[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                               DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                               DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

}  // namespace

TEST(fp32_equals_double_precision) {
  for (const bool tied : {true, false}) {
    TinyLlama tiny;
    tiny.format = FileFormat::kSafetensors;
    tiny.tied = tied;
    const auto file = make_tiny_llama(tiny);
    const Sequence tokens = random_tokens(40, 3);
    const Doubles want = reference_logits(*file, tiny, tokens);
    const auto have = run(file, config("fp32", "f32"), 1, {tokens}, {});
    const double error = relative_error(have[0], want);
    CHECK(error < 2e-6);  // measured 3e-7 to 5e-7
  }
}

// Every arithmetic and storage against double precision; bounds are about twice what was measured.
TEST(other_precisions_are_as_close_as_they_should_be) {
  struct Case {
    DType dtype;
    const char* precision;
    const char* kv;
    double bound;
  };
  const Case cases[] = {
      {DType::kF32, "fp32", "f16", 1e-3},       {DType::kF32, "fp32", "bf16", 6e-3},
      {DType::kF32, "fp32", "int8", 2.5e-2},    {DType::kF32, "bf16", "f32", 1e-2},
      {DType::kBF16, "fast", "f32", 1e-2},      {DType::kQ4_0, "fast", "f32", 4e-2},
      {DType::kQ4_1, "fast", "f32", 4e-2},      {DType::kQ5_0, "fast", "f32", 4e-2},
      {DType::kQ5_1, "fast", "f32", 4e-2},      {DType::kQ8_0, "fast", "f32", 4e-2},
      {DType::kQ4_K, "fast", "f32", 4e-2},      {DType::kQ5_K, "fast", "f32", 4e-2},
      {DType::kQ6_K, "fast", "f32", 4e-2},      {DType::kQ4_1, "bf16", "f16", 1e-2},
      {DType::kQ4_0, "precise", "f32", 1.5e-2}, {DType::kQ4_1, "precise", "f32", 1.5e-2},
      {DType::kQ5_0, "precise", "f32", 1.5e-2}, {DType::kQ5_1, "precise", "f32", 1.5e-2},
      {DType::kQ8_0, "precise", "f32", 1.5e-2}, {DType::kQ4_K, "precise", "f32", 1.5e-2},
      {DType::kQ5_K, "precise", "f32", 1.5e-2}, {DType::kQ6_K, "precise", "f32", 1.5e-2},
      {DType::kQ6_K, "fp32", "f32", 2e-6},
  };
  const Sequence tokens = random_tokens(30, 4);
  for (const Case& c : cases) {
    TinyLlama tiny;
    tiny.format = FileFormat::kSafetensors;
    tiny.dtype = c.dtype;
    const auto file = make_tiny_llama(tiny);
    const Doubles want = reference_logits(*file, tiny, tokens);
    const double error = relative_error(run(file, config(c.precision, c.kv), 1, {tokens}, {})[0], want);
    if (!(error < c.bound)) {
      std::cerr << dtype_info(c.dtype).name << " " << c.precision << " " << c.kv << ": " << error << "\n";
    }
    CHECK(error < c.bound);
    CHECK(error > c.bound / 40);  // a much smaller error would mean that something else ran
  }
}

TEST(both_file_conventions_give_the_same_bits) {
  TinyLlama tiny;
  tiny.dtype = DType::kQ4_1;
  const Sequence tokens = random_tokens(50, 5);
  const auto gguf = run(make_tiny_llama(tiny), config("fast"), 1, {tokens}, {});
  tiny.format = FileFormat::kSafetensors;
  const auto halves = run(make_tiny_llama(tiny), config("fast"), 1, {tokens}, {});
  CHECK(same_bits(gguf, halves));
}

TEST(every_cut_gives_the_same_bits) {
  std::vector<Sequence> sequences;
  for (int s = 0; s < 9; ++s) sequences.push_back(random_tokens(3 + 11 * s, static_cast<uint32_t>(s)));
  sequences.push_back(random_tokens(300, 99));  // several pieces of attention
  const Cut cuts[] = {{1, 1 << 20, 5}, {3, 1, 6}, {3, 16, 0}, {10, 7, 7}, {10, 1 << 20, 8}, {10, 33, 9}};
  const int thread_counts[] = {1, 2, 3, 7, 2, 1};
  struct Case {
    DType dtype;
    const char* precision;
    const char* kv;
  };
  for (const Case& c : {Case{DType::kQ4_1, "fast", "f16"}, Case{DType::kQ6_K, "fast", "int8"},
                        Case{DType::kQ4_1, "precise", "f16"}, Case{DType::kQ6_K, "precise", "f32"},
                        Case{DType::kQ8_0, "bf16", "bf16"}, Case{DType::kF16, "fp32", "f32"}}) {
    TinyLlama tiny;
    tiny.dtype = c.dtype;
    const auto file = make_tiny_llama(tiny);
    const auto whole = run(file, config(c.precision, c.kv), 1, sequences, {});
    for (size_t i = 0; i < std::size(cuts); ++i) {
      CHECK(same_bits(whole, run(file, config(c.precision, c.kv), thread_counts[i], sequences, cuts[i])));
    }
  }
}

TEST(every_level_gives_the_same_bits) {
  const std::vector<Sequence> sequences = {random_tokens(20, 1), random_tokens(3, 2)};
  for (const DType dtype : kAllTypes) {
    for (const std::string precision : {"precise", "fast", "bf16", "fp32"}) {
      if ((precision == "bf16" || precision == "fp32") && dtype != DType::kQ5_K) continue;
      TinyLlama tiny;
      tiny.dtype = dtype;
      tiny.num_layers = 1;
      const auto file = make_tiny_llama(tiny);
      const auto scalar = run(file, config(precision, "f16", "scalar"), 1, sequences, {2, 16, 0});
      for (const std::string& level : kernels::available_levels()) {
        CHECK(same_bits(scalar, run(file, config(precision, "f16", level), 2, sequences, {1, 7, 3})));
      }
    }
  }
}

TEST(copied_blocks_continue_the_sequence) {
  TinyLlama tiny;
  const auto file = make_tiny_llama(tiny);
  ThreadPool pool(1);
  const Sequence tokens = random_tokens(40, 8);
  const auto whole = run(file, config("fast"), 1, {tokens}, {});
  CpuExecutor executor(file, pool, config("fast"));
  const int32_t num_blocks[] = {4};
  executor.allocate_cache(num_blocks);
  executor.reserve(64);
  std::vector<int> done = {0};
  std::vector<Logits> results(1);
  run_step(executor, {tokens}, {{0, 1}}, 0, 1, 35, done, results);
  const std::pair<int32_t, int32_t> pairs[] = {{0, 3}, {1, 2}};
  executor.copy_blocks(0, pairs);
  run_step(executor, {tokens}, {{3, 2}}, 0, 1, 35, done, results);
  CHECK(same_bits(whole, results));
}

TEST(bad_models_are_refused_with_their_reason) {
  ThreadPool pool(1);
  const auto message = [&](const std::shared_ptr<MemoryFile>& file) {
    try {
      CpuExecutor executor(file, pool, config("fast"));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != text.npos;
  };
  TinyLlama tiny;
  auto file = make_tiny_llama(tiny);
  file->set("general.architecture", std::string("mamba"));
  CHECK(contains(message(file), "mamba") && contains(message(file), "supported: llama"));
  file = make_tiny_llama(tiny);
  file->remove("blk.1.ffn_up.weight");
  CHECK(contains(message(file), "blk.1.ffn_up.weight"));
  file = make_tiny_llama(tiny);
  file->add("blk.0.attn_q.bias", DType::kF32, {256}, std::vector<float>(256));
  CHECK(contains(message(file), "blk.0.attn_q.bias"));
  file = make_tiny_llama(tiny);
  file->set("llama.embedding_length", int64_t{128});
  CHECK(contains(message(file), "token_embd.weight"));
  file = make_tiny_llama(tiny);
  file->set("llama.block_count", std::string("two"));
  CHECK(contains(message(file), "llama.block_count"));
  file = make_tiny_llama(tiny);
  file->set("llama.rope.scaling.type", std::string("yarn"));
  CHECK(contains(message(file), "yarn"));
  CHECK_THROWS(Error, CpuExecutor(make_tiny_llama(tiny), pool, config("fastest")));
  CHECK_THROWS(Error, CpuExecutor(make_tiny_llama(tiny), pool, config("fast", "f64")));
}

TEST(broken_batches_are_caught) {
  ThreadPool pool(1);
  CpuExecutor executor(make_tiny_llama({}), pool, config("fast"));
  const int32_t num_blocks[] = {2};
  executor.allocate_cache(num_blocks);
  executor.reserve(8);
  std::vector<Logits> results(1);
  const auto step = [&](const Sequence& tokens, const std::vector<int32_t>& blocks) {
    std::vector<int> done = {0};
    run_step(executor, {tokens}, {blocks}, 0, 1, 100, done, results);
  };
  CHECK_THROWS(Error, step({1, 259}, {0}));             // no such token
  CHECK_THROWS(Error, step({1, 2}, {2}));               // no such block
  CHECK_THROWS(Error, step(random_tokens(9, 1), {0}));  // more than reserved
  CHECK_THROWS(Error, step(Sequence(8, 1), {}));        // no block for its tokens
  const int32_t too_many[] = {1 << 30};
  CHECK_THROWS(Error, executor.allocate_cache(too_many));
}

TEST_MAIN()
