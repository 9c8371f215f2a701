#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "deepinfer/status.h"
#include "kernels/formats/formats.h"
#include "kernels/paged_attention.h"
#include "models/llama/llama.h"
#include "models/llama/weights.h"

namespace deepinfer::models::llama {
namespace {

constexpr int kLogitRows = 64;  // rows of logits handed out at once
constexpr int kRowGrain = 4;    // rows of small work that are not worth another thread
constexpr int kStripRows =
    128;  // rows taken through a layer's matrices together: what they write stays in cache

class Llama final : public Model {
 public:
  Llama(std::shared_ptr<const TensorFile> file, const ModelOptions& options)
      : file_(std::move(file)),
        kernels_(*options.kernels),
        pool_(*options.pool),
        shape_(read_shape(*file_)),
        weights_(load_weights(*file_, shape_, options)),
        kv_layout_(kernels::make_kv_layout(options.kv_type, shape_.head_dim, options.block_tokens)),
        attention_{{{kernels_, pool_, kv_layout_, shape_.num_heads, shape_.num_kv_heads, shape_.num_layers},
                    {kernels_, pool_, kv_layout_, shape_.num_heads, shape_.num_kv_heads, shape_.num_layers}}},
        multiplier_(kernels_, pool_, max_width()),
        two_parts_rows_(options.two_parts_rows),
        two_parts_bytes_(options.two_parts_bytes) {
    info_.family = "llama";
    info_.name = shape_.name;
    info_.vocab_size = shape_.vocab_size;
    info_.max_positions = shape_.max_positions;
    info_.num_layers = shape_.num_layers;
    info_.num_parameters = weights_.num_parameters;
    info_.weight_bytes = weights_.num_bytes;
    const DTypeInfo& dtype = dtype_info(weights_.embedding->dtype);
    embedding_row_.resize(static_cast<size_t>(shape_.dim / dtype.block_elems * dtype.block_bytes));
  }

  const ModelInfo& info() const override { return info_; }

  std::vector<CacheGroupSpec> cache_groups() const override {
    return {{"kv", CacheKind::kPaged, kv_layout_.block_tokens, attention_[0].block_bytes()}};
  }

  void reserve(int max_tokens) override {
    max_tokens_ = max_tokens;
    const auto floats = [](int64_t count) {
      return Pages(count * static_cast<int64_t>(sizeof(float)), "buffers");
    };
    const int64_t rows = max_tokens;
    residual_ = floats(rows * shape_.dim);
    qkv_ = floats(rows * qkv_width());
    attended_ = floats(rows * shape_.query_width());
    gate_up_ = floats(std::min<int64_t>(rows, kStripRows) * 2 * shape_.hidden_dim);
    angles_ = floats(rows * shape_.head_dim);
    logits_ = floats(int64_t{kLogitRows} * shape_.vocab_size);
    row_ = floats(int64_t{pool_.num_threads()} * max_width());
    activations_ = std::make_unique<kernels::Activations>(
        kernels_, std::max(std::min(max_tokens, kStripRows), kLogitRows), max_width());
  }

  void forward(const Batch& batch, std::span<const CacheMemory> caches, LogitsSink& sink) override {
    const int num_tokens = batch.num_tokens();
    DI_CHECK(num_tokens >= 1 && num_tokens <= max_tokens_, num_tokens, " ", max_tokens_);
    cut_in_parts(batch);
    embed(batch);
    fill_angles(batch);
    run_layers(caches[0].data);
    hand_out_logits(batch, sink);
  }

 private:
  int qkv_width() const { return shape_.query_width() + 2 * shape_.kv_width(); }
  int max_width() const { return std::max({shape_.dim, shape_.hidden_dim, shape_.query_width()}); }
  static float* floats(const Pages& pages) { return reinterpret_cast<float*>(pages.data()); }
  float* worker_row(int worker) const { return floats(row_) + int64_t{worker} * max_width(); }

  // Through the file, not its mapping: the table is as large as the head, and a row here and there would
  // bring most of it into memory.
  void embed(const Batch& batch) {
    const TensorInfo& table = *weights_.embedding;
    for (int t = 0; t < batch.num_tokens(); ++t) {
      const auto token = static_cast<uint64_t>(batch.tokens[static_cast<size_t>(t)]);
      file_->read(table, token * embedding_row_.size(), embedding_row_);
      formats::dequantise(table.dtype, embedding_row_.data(), shape_.dim, residual(t));
    }
  }

  // Cosines and sines of every token, as the models were trained: the angle is an fp32 product.
  void fill_angles(const Batch& batch) {
    const int half = shape_.head_dim / 2;
    pool_.parallel_for(batch.num_tokens(), kRowGrain, [&](int t, int) {
      float* cosines = floats(angles_) + int64_t{t} * shape_.head_dim;
      const auto position = static_cast<float>(batch.positions[static_cast<size_t>(t)]);
      for (int i = 0; i < half; ++i) {
        const double angle = position * shape_.inverse_frequencies[static_cast<size_t>(i)];
        cosines[i] = static_cast<float>(std::cos(angle));
        cosines[half + i] = static_cast<float>(std::sin(angle));
      }
    });
  }

  float* qkv(int row) const { return floats(qkv_) + int64_t{row} * qkv_width(); }
  float* residual(int row) const { return floats(residual_) + int64_t{row} * shape_.dim; }

  struct Strip {
    int first, count;  // rows of the batch
  };
  static int num_strips(Strip rows) { return (rows.count + kStripRows - 1) / kStripRows; }
  static Strip strip_of(Strip rows, int i) {
    return {rows.first + i * kStripRows, std::min(kStripRows, rows.count - i * kStripRows)};
  }

  // Sequences that go through the layers together. With two parts, one attends while the other multiplies.
  struct Part {
    Strip rows;
    kernels::PagedAttention* attention;
  };

  static int first_token(const Batch& batch, int sequence) {
    return batch.sequences[static_cast<size_t>(sequence)].first_token;
  }

  void cut_in_parts(const Batch& batch) {
    const int num_sequences = static_cast<int>(batch.sequences.size()), num_tokens = batch.num_tokens();
    int64_t num_read = 0;  // tokens in the cache that the batch attends to
    for (const BatchSequence& sequence : batch.sequences) num_read += sequence.num_computed;
    const int64_t bytes_read = num_read * attention_[0].layer_bytes() / kv_layout_.block_tokens;
    if (num_sequences < 2 || num_tokens < two_parts_rows_ || bytes_read < two_parts_bytes_) {
      attention_[0].plan(batch, 0, 0, num_sequences);
      num_parts_ = 1;
      parts_[0] = {{0, num_tokens}, &attention_[0]};
      return;
    }
    // About half of the rows, in whole tiles.
    const kernels::Linear& linear = weights_.layers[0].query_key_value;
    const int tile = kernels_.max_tile_rows(linear.parts[0].arithmetic, num_tokens / 2);
    int middle = 1;  // first sequence of the second part
    while (middle + 1 < num_sequences && first_token(batch, middle) < num_tokens / 2 / tile * tile) ++middle;
    const int first = first_token(batch, middle);
    attention_[0].plan(batch, 0, 0, middle);
    attention_[1].plan(batch, 0, middle, num_sequences);
    num_parts_ = 2;
    parts_[0] = {{0, first}, &attention_[0]};
    parts_[1] = {{first, num_tokens - first}, &attention_[1]};
  }

  // A part attends while the other one multiplies. A part that is alone can only ask for keys and values
  // meanwhile, and only late, or they would be gone again when it attends.
  void run_layers(std::byte* cache) {
    const bool alone = num_parts_ == 1;
    const Part &first = parts_[0], &second = parts_[alone ? 0 : 1];
    if (!alone) multiply(first, 0, cache, nullptr);
    for (int i = 0; i < shape_.num_layers; ++i) {
      attend_beside(first, i, second, i, cache);
      if (!alone) attend_beside(second, i, first, i + 1, cache);
    }
    multiply(second, shape_.num_layers, cache, nullptr);
  }

  // The attention of `part` in layer `layer`, and the products of `other` up to its attention of `next`.
  void attend_beside(const Part& part, int layer, const Part& other, int next, std::byte* cache) {
    const bool is_ready = &part != &other;
    part.attention->begin(
        {layer_cache(cache, layer), floats(qkv_), qkv_width(), floats(attended_), shape_.query_width()},
        is_ready, num_blocks(other, next, !is_ready));
    multiply(other, next, cache, part.attention, !is_ready);
    part.attention->finish();
  }

  std::byte* layer_cache(std::byte* cache, int layer) const {
    return cache + layer * attention_[0].layer_bytes();
  }

  // A part's way from its attention of layer `next` - 1 to that of `next`. late: side work in the last
  // product only.
  void multiply(const Part& part, int next, std::byte* cache, kernels::SideWork* side, bool late = false) {
    for (int i = 0; i < num_strips(part.rows); ++i) {
      const Strip strip = strip_of(part.rows, i);
      if (next > 0) {
        const Layer& layer = weights_.layers[static_cast<size_t>(next - 1)];
        attention_output(layer, strip, late ? nullptr : side);
        feed_forward(layer, strip, late ? nullptr : side);
      }
      if (next < shape_.num_layers) {
        project_and_store(weights_.layers[static_cast<size_t>(next)], layer_cache(cache, next), part, strip,
                          side);
      }
    }
  }

  // The blocks of multiply() that have side work.
  int64_t num_blocks(const Part& part, int next, bool late) const {
    int64_t total = 0;
    for (int i = 0; i < num_strips(part.rows); ++i) {
      const int count = strip_of(part.rows, i).count;
      if (next > 0 && !late) {
        const Layer& layer = weights_.layers[static_cast<size_t>(next - 1)];
        total += multiplier_.num_blocks(layer.attention_output, count) +
                 multiplier_.num_blocks(layer.gate_up, count) + multiplier_.num_blocks(layer.down, count);
      }
      if (next < shape_.num_layers)
        total += multiplier_.num_blocks(weights_.layers[static_cast<size_t>(next)].query_key_value, count);
    }
    return total;
  }

  // activations <- norm(residual rows), ready for `linear`.
  void normalise(const std::vector<float>& weight, const kernels::Linear& linear, Strip strip) {
    activations_->begin(strip.count, linear);
    pool_.parallel_for(strip.count, kRowGrain, [&](int row, int worker) {
      float* values = worker_row(worker);
      kernels_.rms_norm(residual(strip.first + row), weight.data(), shape_.norm_epsilon, shape_.dim, values);
      activations_->set_row(row, values);
    });
  }

  void project_and_store(const Layer& layer, std::byte* cache, const Part& part, Strip strip,
                         kernels::SideWork* side) {
    normalise(layer.attention_norm, layer.query_key_value, strip);
    multiplier_.run(layer.query_key_value, *activations_, {qkv(strip.first), qkv_width(), false}, side);
    const float query_scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    pool_.parallel_for(strip.count, kRowGrain, [&](int row, int) {
      const int t = strip.first + row;
      float* queries = qkv(t);
      float* keys = queries + shape_.query_width();
      const float* cosines = floats(angles_) + int64_t{t} * shape_.head_dim;
      const float* sines = cosines + shape_.head_dim / 2;
      kernels_.rope(queries, shape_.num_heads, shape_.head_dim, cosines, sines, query_scale);
      kernels_.rope(keys, shape_.num_kv_heads, shape_.head_dim, cosines, sines, 1.0f);
      part.attention->store(cache, t, keys, keys + shape_.kv_width());
    });
  }

  void attention_output(const Layer& layer, Strip strip, kernels::SideWork* side) {
    activations_->begin(strip.count, layer.attention_output);
    pool_.parallel_for(strip.count, kRowGrain, [&](int row, int) {
      activations_->set_row(row, floats(attended_) + int64_t{strip.first + row} * shape_.query_width());
    });
    multiplier_.run(layer.attention_output, *activations_, {residual(strip.first), shape_.dim, true}, side);
  }

  void feed_forward(const Layer& layer, Strip strip, kernels::SideWork* side) {
    normalise(layer.feed_forward_norm, layer.gate_up, strip);
    multiplier_.run(layer.gate_up, *activations_, {floats(gate_up_), 2 * shape_.hidden_dim, false}, side);
    activations_->begin(strip.count, layer.down);
    pool_.parallel_for(strip.count, kRowGrain, [&](int row, int worker) {
      const float* gate = floats(gate_up_) + int64_t{row} * 2 * shape_.hidden_dim;
      float* values = worker_row(worker);
      kernels_.swiglu(gate, gate + shape_.hidden_dim, shape_.hidden_dim, values);
      activations_->set_row(row, values);
    });
    multiplier_.run(layer.down, *activations_, {residual(strip.first), shape_.dim, true}, side);
  }

  void hand_out_logits(const Batch& batch, LogitsSink& sink) {
    for (int first = 0; first < batch.num_logit_rows(); first += kLogitRows) {
      const int count = std::min(kLogitRows, batch.num_logit_rows() - first);
      activations_->begin(count, weights_.head);
      pool_.parallel_for(count, kRowGrain, [&](int row, int worker) {
        float* values = worker_row(worker);
        const int token = batch.logit_tokens[static_cast<size_t>(first + row)];
        kernels_.rms_norm(residual(token), weights_.final_norm.data(), shape_.norm_epsilon, shape_.dim,
                          values);
        activations_->set_row(row, values);
      });
      multiplier_.run(weights_.head, *activations_, {floats(logits_), shape_.vocab_size, false});
      sink.consume(first, count, floats(logits_));
    }
  }

  std::shared_ptr<const TensorFile> file_;  // the embedding is read from it
  const kernels::KernelTable& kernels_;
  ThreadPool& pool_;
  Shape shape_;
  Weights weights_;
  kernels::KvLayout kv_layout_;
  std::array<kernels::PagedAttention, 2> attention_;  // of each part
  std::array<Part, 2> parts_ = {};
  int num_parts_ = 1;
  kernels::Multiplier multiplier_;
  int two_parts_rows_;
  int64_t two_parts_bytes_;
  ModelInfo info_;

  int max_tokens_ = 0;
  std::vector<std::byte> embedding_row_;  // one row as the file has it
  Pages residual_;                        // [max_tokens, dim]
  Pages qkv_;                             // [max_tokens, qkv_width]
  Pages attended_;                        // [max_tokens, query_width]
  Pages gate_up_;                         // [kStripRows, 2 * hidden_dim]
  Pages angles_;                          // [max_tokens, 2, head_dim / 2] cosines, sines
  Pages logits_;                          // [kLogitRows, vocab_size]
  Pages row_;                             // [num_threads, max_width]
  std::unique_ptr<kernels::Activations> activations_;
};

}  // namespace

std::unique_ptr<Model> create(const std::shared_ptr<const TensorFile>& file, const ModelOptions& options) {
  return std::make_unique<Llama>(file, options);
}

}  // namespace deepinfer::models::llama
