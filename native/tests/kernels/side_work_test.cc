// Attention as the side work of products: the same bits as alone, in chunks of every state, for any number of
// threads; and every line of keys and values is asked for once.
#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "kernels/dispatch.h"
#include "kernels/formats/formats.h"
#include "kernels/paged_attention.h"
#include "testing.h"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

constexpr int kHeads = 4, kKvHeads = 2, kDim = 64, kBlockTokens = 32, kLayers = 2, kContext = 150;
constexpr int kWidth = kHeads * kDim;

// Sequences with kContext tokens each in the cache, in blocks that lie in no order, and `count` new ones.
struct Job {
  Job(ThreadPool& pool, KvType type, int num_sequences, int count)
      : attention(table_for("scalar"), pool, make_kv_layout(type, kDim, kBlockTokens), kHeads, kKvHeads,
                  kLayers) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    BlockTables tables;
    tables.offsets.push_back(0);
    const int each = (kContext + count + kBlockTokens - 1) / kBlockTokens;
    std::vector<int32_t> order(static_cast<size_t>(each * num_sequences));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    for (int s = 0; s < num_sequences; ++s) {
      for (int t = 0; t < kContext + count; ++t) add_token(s, t);
      batch.sequences.push_back({s * (kContext + count), kContext + count, 0});
      tables.offsets.push_back((s + 1) * each);
    }
    tables.blocks = order;
    batch.groups.push_back(tables);
    cache = Pages(static_cast<int64_t>(order.size()) * attention.block_bytes(), "test");
    attention.plan(batch, 0, 0, num_sequences);
    std::vector<float> key(kKvHeads * kDim), value(kKvHeads * kDim);
    for (int token = 0; token < batch.num_tokens(); ++token) {
      for (float& x : key) x = normal(random);
      for (float& x : value) x = normal(random);
      attention.store(layer(), token, key.data(), value.data());
    }
    batch.tokens.clear();
    batch.positions.clear();
    batch.token_sequences.clear();
    batch.sequences.clear();
    for (int s = 0; s < num_sequences; ++s) {
      batch.sequences.push_back({batch.num_tokens(), count, kContext});
      for (int t = 0; t < count; ++t) add_token(s, kContext + t);
    }
    queries.resize(static_cast<size_t>(batch.num_tokens()) * kWidth);
    for (float& x : queries) x = normal(random);
    out.assign(queries.size(), 0.0f);
  }
  void add_token(int sequence, int position) {
    batch.tokens.push_back(0);
    batch.positions.push_back(position);
    batch.token_sequences.push_back(sequence);
  }
  std::byte* layer() { return cache.data() + attention.layer_bytes(); }
  PagedAttention::Run run() { return {layer(), queries.data(), kWidth, out.data(), kWidth}; }
  const std::vector<float>& alone(int first, int end) {
    attention.plan(batch, 0, first, end);
    attention.begin(run(), true, 0);
    attention.finish();
    return out;
  }

  PagedAttention attention;
  Batch batch;
  Pages cache;
  std::vector<float> queries, out;
};

// A product of `num_rows` rows to do meanwhile.
struct Product {
  Product(ThreadPool& pool, const std::string& level, int num_rows)
      : table(table_for(level)),
        activations(table, num_rows, 256),
        multiplier(table, pool, 256),
        rows(num_rows) {
    const DTypeInfo& info = dtype_info(DType::kQ4_1);
    std::vector<float> weights(256 * 320);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 17) - 8.0f;
    bytes.resize(weights.size() / static_cast<size_t>(info.block_elems) *
                 static_cast<size_t>(info.block_bytes));
    formats::quantise(DType::kQ4_1, weights.data(), static_cast<int64_t>(weights.size()), bytes.data());
    TensorInfo tensor;
    tensor.name = "test";
    tensor.dtype = DType::kQ4_1;
    tensor.shape = {320, 256};
    tensor.data = bytes.data();
    tensor.num_bytes = bytes.size();
    linear.append(pack_matrix(tensor, {}, Precision::kFast, pool, arena));
    activations.begin(num_rows, linear);
    for (int row = 0; row < num_rows; ++row) activations.set_row(row, weights.data() + 256 * row);
  }
  std::vector<float> run(SideWork* side) {
    std::vector<float> y(static_cast<size_t>(rows * linear.n));
    multiplier.run(linear, activations, {y.data(), linear.n, false}, side);
    return y;
  }
  int64_t num_blocks() const { return multiplier.num_blocks(linear, rows); }

  const KernelTable& table;
  std::vector<std::byte> bytes;
  PageArena arena;
  Linear linear;
  Activations activations;
  Multiplier multiplier;
  int rows;
};

}  // namespace

TEST(attention_beside_products_has_the_bits_of_attention_alone) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const KvType type : {KvType::kF16, KvType::kI8}) {
      Job job(pool, type, 24, 2);
      const std::vector<float> want = job.alone(0, 24);
      CHECK(want != std::vector<float>(want.size(), 0.0f));
      for (const std::string& level : available_levels()) {
        Product product(pool, level, 23);
        const std::vector<float> result = product.run(nullptr);
        // No product, too few for all chunks, enough; and only asked for, not done.
        for (const int num_products : {0, 2, 40}) {
          for (const bool is_ready : {true, false}) {
            std::ranges::fill(job.out, 0.0f);
            job.attention.plan(job.batch, 0, 0, 24);
            job.attention.begin(job.run(), is_ready, num_products * product.num_blocks());
            for (int i = 0; i < num_products; ++i) CHECK(product.run(&job.attention) == result);
            const bool is_untouched = job.out == std::vector<float>(want.size(), 0.0f);
            CHECK(is_untouched == (!is_ready || num_products == 0) || num_products < 40);
            job.attention.finish();
            CHECK(job.out == want);
          }
        }
      }
    }
  }
}

TEST(two_parts_do_all_sequences_and_no_others) {
  ThreadPool pool(1);
  Job job(pool, KvType::kF16, 9, 1);
  const std::vector<float> want = job.alone(0, 9);
  std::ranges::fill(job.out, 0.0f);
  job.alone(0, 4);
  CHECK(std::equal(want.begin(), want.begin() + 4 * kWidth, job.out.begin()));
  CHECK(std::all_of(job.out.begin() + 4 * kWidth, job.out.end(), [](float x) { return x == 0.0f; }));
  CHECK(job.alone(4, 9) == want);
}

TEST(every_line_is_asked_for_once) {
  ThreadPool pool(1);
  Job job(pool, KvType::kF16, 24, 1);
  job.attention.plan(job.batch, 0, 0, 24);
  // 150 tokens are ten tiles of 16: keys and values of two heads.
  const int64_t num_lines = int64_t{24} * kKvHeads * 160 * kDim * 2 * 2 / kLineBytes;
  job.attention.begin(job.run(), true, 1000);
  std::set<const std::byte*> asked;
  const auto ask = [&](const std::byte* first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) CHECK(asked.insert(first + i * kLineBytes).second);
    CHECK(first >= job.layer() && first + count * kLineBytes <= job.cache.data() + job.cache.size());
  };
  int num_chunks = 0;
  while (true) {
    Upcoming& upcoming = job.attention.turn(0);
    if (upcoming.per_block == 0) break;
    ++num_chunks;
    ask(upcoming.at, upcoming.left);
    for (; upcoming.next != upcoming.end; ++upcoming.next)
      ask(upcoming.base + upcoming.next->first * kLineBytes, upcoming.next->count);
    upcoming.per_block = 0;  // all were asked for
  }
  CHECK(num_chunks > 3);
  CHECK_EQ(static_cast<int64_t>(asked.size()), num_lines);
}

TEST_MAIN()
