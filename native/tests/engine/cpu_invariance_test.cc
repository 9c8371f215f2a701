// The promise on the real executor: tokens, text and the bits of every logprob do not depend on batch size,
// threads, chunks, prefix cache, order, preemption. Tiny llamas in every weight format, with every precision,
// KV type and instruction set level. `make test` runs a pairwise cover of all of these. DEEPINFER_TEST_GRID=K
// runs every K-th cell of the whole grid instead (a prime in `make test-all`, 1 in `make invariance`), and
// DEEPINFER_TEST_PART=I/N the I-th (from 0) of N equal parts of those.
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>

#include "engine/engine_core.h"
#include "engine/naive_engine.h"
#include "engine/random_requests.h"
#include "executor/cpu_executor.h"
#include "kernels/dispatch.h"
#include "support/pairwise.h"
#include "support/sanitized.h"
#include "support/tiny_llama.h"
#include "testing.h"

using namespace deepinfer;
using namespace deepinfer::testing;

namespace {

struct Weights {
  FileFormat format;
  DType dtype;
};
constexpr std::array kWeights = {
    Weights{FileFormat::kGguf, DType::kF32},        Weights{FileFormat::kGguf, DType::kF16},
    Weights{FileFormat::kGguf, DType::kBF16},       Weights{FileFormat::kGguf, DType::kQ4_0},
    Weights{FileFormat::kGguf, DType::kQ4_1},       Weights{FileFormat::kGguf, DType::kQ5_0},
    Weights{FileFormat::kGguf, DType::kQ5_1},       Weights{FileFormat::kGguf, DType::kQ8_0},
    Weights{FileFormat::kGguf, DType::kQ4_K},       Weights{FileFormat::kGguf, DType::kQ5_K},
    Weights{FileFormat::kGguf, DType::kQ6_K},       Weights{FileFormat::kSafetensors, DType::kF32},
    Weights{FileFormat::kSafetensors, DType::kF16}, Weights{FileFormat::kSafetensors, DType::kBF16},
};
constexpr std::array kPrecisions = {"precise", "fast", "bf16", "fp32"};
constexpr float kThreshold = 2.0f;  // for rows so short: residuals in some blocks, none in others
constexpr std::array kKvTypes = {"f16", "bf16", "f32", "int8"};
constexpr std::array kBatches = {1, 3, 17, 64};
constexpr std::array kThreads = {1, 2, 3, 7};
constexpr std::array kChunks = {1, 16, 512};

constexpr int32_t kVocab = 259, kContext = 64;

const std::shared_ptr<MemoryFile>& tiny_file(const Weights& weights) {
  static std::map<std::pair<FileFormat, DType>, std::shared_ptr<MemoryFile>> files;
  std::shared_ptr<MemoryFile>& file = files[{weights.format, weights.dtype}];
  if (file) return file;
  const int block = dtype_info(weights.dtype).block_elems;
  TinyLlama tiny{.format = weights.format, .dtype = weights.dtype, .num_layers = 2, .vocab_size = kVocab};
  tiny.dim = tiny.hidden_dim = std::max(64, block);
  tiny.num_heads = tiny.dim / 32;
  tiny.num_kv_heads = tiny.num_heads / 2;
  tiny.head_dim = 32;
  tiny.tied = weights.dtype != DType::kQ6_K;
  return file = make_tiny_llama(tiny);
}

// Enough sequences to fill the largest batch; many share a prefix.
const std::vector<Request>& workload() {
  static const std::vector<Request> requests = [] {
    Draw draw(5);
    const RequestRange range{
        .vocab_size = kVocab, .eos = 0, .max_prompt = 36, .max_tokens = 7, .max_samples = 4};
    std::vector<Request> all;
    for (uint64_t id = 0; id < 44; ++id) {
      all.push_back(random_request(draw, range, id));
      all.back().sampling.top_logprobs = static_cast<int32_t>(id % 3);
      all.back().score_begin = all.back().score_end = 0;
      if (all.back().prompt_logprobs < 0)
        all.back().sampling.max_tokens = std::max(1, all.back().sampling.max_tokens);
    }
    return all;
  }();
  return requests;
}

struct Model {
  int weights = 0, precision = 0, kv = 0;
  std::string isa;
};
struct Schedule {
  int batch = 1, threads = 1, chunk = 512;
  bool cache = false, shuffled = false, preempted = false;
};

std::map<uint64_t, std::string> run(const Model& model, const Schedule& schedule) {
  ThreadPool pool(schedule.threads);
  CpuExecutorConfig cpu;
  cpu.residual_threshold = kThreshold;
  cpu.precision = kPrecisions[static_cast<size_t>(model.precision)];
  cpu.kv_dtype = kKvTypes[static_cast<size_t>(model.kv)];
  cpu.isa = model.isa;
  cpu.block_tokens = 16;
  cpu.two_parts_rows = 12;
  cpu.two_parts_bytes = 0;
  CpuExecutor executor(tiny_file(kWeights[static_cast<size_t>(model.weights)]), pool, cpu);
  EngineConfig config;
  config.max_num_seqs = schedule.batch;
  config.prefill_chunk = schedule.chunk;
  config.max_step_tokens = std::max(schedule.batch, schedule.chunk);
  config.max_context = kContext;
  config.prefix_cache = schedule.cache;
  config.eos_token_ids = {0};
  config.num_blocks = {schedule.preempted ? 12 : 4 * 64};
  config.debug_preempt_every = schedule.preempted ? 4 : 0;
  config.async_scheduling = !schedule.shuffled;
  config.async_min_rows = 0;
  EngineCore core(executor, pool, odd_tokens(kVocab), config);
  std::vector<Request> requests = workload();
  if (model.isa == "scalar") requests.resize(8);  // slow, and its kernels have no tiles to mix up
  if (schedule.shuffled) std::ranges::shuffle(requests, std::mt19937(3));
  for (Request& request : requests) core.add(std::move(request));
  std::map<uint64_t, std::string> rows;
  while (core.has_work()) {
    core.step();
    for (const Completion& completion : core.take_finished()) rows[completion.id] = print(completion);
  }
  core.check_integrity();
  return rows;
}

// The plainest schedule of a model, computed once.
const std::map<uint64_t, std::string>& baseline(const Model& model) {
  static std::map<std::string, std::map<uint64_t, std::string>> known;
  auto& rows = known[str_cat(model.weights, " ", model.precision, " ", model.kv, " ", model.isa)];
  if (rows.empty()) rows = run(model, {});
  return rows;
}

bool check(const Model& model, const Schedule& s) {
  if (run(model, s) == baseline(model)) return true;
  std::cerr << dtype_info(kWeights[static_cast<size_t>(model.weights)].dtype).name << " precision "
            << model.precision << " kv " << model.kv << " isa " << model.isa << " batch " << s.batch
            << " threads " << s.threads << " chunk " << s.chunk << " cache " << s.cache << " shuffled "
            << s.shuffled << " preempted " << s.preempted << " differs\n";
  return false;
}

// bf16 and fp32 unpack every file format into the same panels at load, and what follows no longer knows the
// format: in the grid one quantised and one float format stand for all. fast has arithmetic for each format.
bool has_own_arithmetic(const Combination& c) {
  const DType dtype = kWeights[static_cast<size_t>(c[0])].dtype;
  const bool is_fast = c[1] == 0;
  return is_fast || dtype == DType::kQ4_1 || dtype == DType::kF16;
}

Model model_of(const Combination& c, const std::vector<std::string>& levels) {
  return {c[0], c[1], c[2], levels[static_cast<size_t>(c[3])]};
}
Schedule schedule_of(const Combination& c) {
  return {kBatches[static_cast<size_t>(c[4])],
          kThreads[static_cast<size_t>(c[5])],
          kChunks[static_cast<size_t>(c[6])],
          c[7] != 0,
          c[8] != 0,
          c[9] != 0};
}

// The cell's digits, the last factor fastest.
Combination combination(const std::vector<int>& sizes, int64_t cell) {
  Combination c(sizes.size(), 0);
  for (size_t f = sizes.size(); f-- > 0; cell /= sizes[f]) c[f] = static_cast<int>(cell % sizes[f]);
  return c;
}

std::vector<Combination> pairwise_cells(const std::vector<int>& sizes) {
  const std::vector<Combination> cover = pairwise_cover(sizes);
  std::vector<Combination> cells;
  for (size_t i = 0; i < cover.size(); i += kIsSanitized ? 4 : 1) cells.push_back(cover[i]);
  return cells;
}

std::vector<Combination> grid_cells(const std::vector<int>& sizes, int step) {
  const int64_t num_all = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  std::vector<Combination> cells;
  int64_t num_distinct = 0;
  for (int64_t cell = 0; cell < num_all; ++cell) {
    Combination c = combination(sizes, cell);
    if (has_own_arithmetic(c) && num_distinct++ % step == 0) cells.push_back(std::move(c));
  }
  return cells;
}

// As the environment asks.
std::vector<Combination> chosen_cells(const std::vector<int>& sizes) {
  const char* grid = std::getenv("DEEPINFER_TEST_GRID");
  if (grid == nullptr) return pairwise_cells(sizes);
  const std::vector<Combination> cells = grid_cells(sizes, std::max(1, std::atoi(grid)));
  size_t part = 0, num_parts = 1;
  if (const char* text = std::getenv("DEEPINFER_TEST_PART")) {
    char slash = 0;
    std::istringstream in(text);
    in >> part >> slash >> num_parts;
    CHECK(in && slash == '/' && part < num_parts);
  }
  const auto at = [&](size_t p) {
    return cells.begin() + static_cast<int64_t>(cells.size() * p / num_parts);
  };
  return {at(part), at(part + 1)};
}

std::vector<int> factor_sizes(size_t num_levels) {
  return {std::ssize(kWeights),
          std::ssize(kPrecisions),
          std::ssize(kKvTypes),
          static_cast<int>(num_levels),
          std::ssize(kBatches),
          std::ssize(kThreads),
          std::ssize(kChunks),
          2,
          2,
          2};
}

}  // namespace

TEST(no_schedule_changes_a_bit) {
  const std::vector<std::string> levels = kernels::available_levels();
  const std::vector<Combination> cells = chosen_cells(factor_sizes(levels.size()));
  int num_wrong = 0;
  for (const Combination& cell : cells) num_wrong += !check(model_of(cell, levels), schedule_of(cell));
  std::cerr << cells.size() << " cells\n";
  CHECK(!cells.empty());
  CHECK_EQ(num_wrong, 0);
}

TEST(the_engine_equals_whole_histories_computed_anew) {
  ThreadPool pool(1);
  CpuExecutorConfig cpu;
  cpu.precision = kPrecisions[0];
  cpu.residual_threshold = kThreshold;
  CpuExecutor executor(tiny_file({FileFormat::kGguf, DType::kQ4_1}), pool, cpu);
  NaiveModel model(executor, kContext);
  const NaiveEngine naive{model, odd_tokens(kVocab), kContext, {0}};
  const Model same{4, 0, 0, executor.isa()};
  for (const Request& request : workload())
    CHECK_EQ(print(naive.run(request)), baseline(same).at(request.id));
}

TEST_MAIN()
