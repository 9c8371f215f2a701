#include "models/llama/weights.h"

#include <set>
#include <string>
#include <utility>

#include "deepinfer/status.h"
#include "kernels/formats/formats.h"
#include "models/metadata.h"

namespace deepinfer::models::llama {
namespace {

constexpr DType kWeightTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                                  DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                  DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
constexpr DType kNormTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Tensor names of one file format.
struct Names {
  std::string embedding, final_norm, head, layer_prefix;
  std::string attention_norm, query, key, value, attention_output;
  std::string feed_forward_norm, gate, up, down;
};
const Names kGgufNames = {"token_embd.weight",  "output_norm.weight", "output.weight",   "blk.",
                          "attn_norm.weight",   "attn_q.weight",      "attn_k.weight",   "attn_v.weight",
                          "attn_output.weight", "ffn_norm.weight",    "ffn_gate.weight", "ffn_up.weight",
                          "ffn_down.weight"};
const Names kHfNames = {"model.embed_tokens.weight",
                        "model.norm.weight",
                        "lm_head.weight",
                        "model.layers.",
                        "input_layernorm.weight",
                        "self_attn.q_proj.weight",
                        "self_attn.k_proj.weight",
                        "self_attn.v_proj.weight",
                        "self_attn.o_proj.weight",
                        "post_attention_layernorm.weight",
                        "mlp.gate_proj.weight",
                        "mlp.up_proj.weight",
                        "mlp.down_proj.weight"};

class Loader {
 public:
  Loader(const TensorFile& file, const Shape& shape, const ModelOptions& options)
      : file_(file),
        shape_(shape),
        options_(options),
        names_(file.format() == FileFormat::kGguf ? kGgufNames : kHfNames) {}

  Weights load() {
    weights_.embedding = &matrix(names_.embedding, shape_.vocab_size, shape_.dim);
    // The largest first: its pages in the file and its packed form are there together for a moment, and the
    // rest is not there yet.
    const bool says_untied = !Metadata(file_).flag_or("tie_word_embeddings", true);
    const bool tied = file_.find(names_.head) == nullptr && !says_untied;
    add(weights_.head, tied ? names_.embedding : names_.head, shape_.vocab_size, shape_.dim);
    for (int i = 0; i < shape_.num_layers; ++i)
      weights_.layers.push_back(layer(names_.layer_prefix + std::to_string(i) + "."));
    weights_.final_norm = norm(names_.final_norm);
    refuse_leftovers();
    for (const TensorInfo& tensor : file_.tensors()) {
      int64_t count = 1;
      for (const int64_t size : tensor.shape) count *= size;
      weights_.num_parameters += count;
    }
    return std::move(weights_);
  }

 private:
  const TensorInfo& matrix(const std::string& name, int rows, int columns) {
    used_.insert(name);
    const int64_t shape[] = {rows, columns};
    return file_.require(name, shape, kWeightTypes);
  }

  std::vector<float> norm(const std::string& name) {
    used_.insert(name);
    const int64_t shape[] = {shape_.dim};
    const TensorInfo& tensor = file_.require(name, shape, kNormTypes);
    std::vector<float> values(static_cast<size_t>(shape_.dim));
    formats::dequantise(tensor.dtype, tensor.data, shape_.dim, values.data());
    return values;
  }

  void add(kernels::Linear& linear, const std::string& name, int rows, int columns,
           std::span<const int32_t> row_order = {}) {
    const TensorInfo& tensor = matrix(name, rows, columns);
    const kernels::PackedView packed =
        kernels::pack_matrix(tensor, row_order, options_.precision, *options_.pool, weights_.memory);
    weights_.num_bytes += packed.num_bytes();
    linear.append(packed);
    linear.residual_threshold = options_.residual_threshold;
    file_.drop_pages(tensor);
  }

  // Our rotation pairs element i of a head with i + head_dim / 2. GGUF keeps such pairs side by side.
  std::vector<int32_t> rope_order(int num_heads) const {
    if (!shape_.interleaved_rope) return {};
    const int half = shape_.head_dim / 2;
    std::vector<int32_t> order;
    for (int h = 0; h < num_heads; ++h) {
      for (int side = 0; side < 2; ++side) {
        for (int i = 0; i < half; ++i) order.push_back(h * shape_.head_dim + 2 * i + side);
      }
    }
    return order;
  }

  Layer layer(const std::string& prefix) {
    Layer layer;
    layer.attention_norm = norm(prefix + names_.attention_norm);
    add(layer.query_key_value, prefix + names_.query, shape_.query_width(), shape_.dim,
        rope_order(shape_.num_heads));
    add(layer.query_key_value, prefix + names_.key, shape_.kv_width(), shape_.dim,
        rope_order(shape_.num_kv_heads));
    add(layer.query_key_value, prefix + names_.value, shape_.kv_width(), shape_.dim);
    add(layer.attention_output, prefix + names_.attention_output, shape_.dim, shape_.query_width());
    layer.feed_forward_norm = norm(prefix + names_.feed_forward_norm);
    add(layer.gate_up, prefix + names_.gate, shape_.hidden_dim, shape_.dim);
    add(layer.gate_up, prefix + names_.up, shape_.hidden_dim, shape_.dim);
    add(layer.down, prefix + names_.down, shape_.dim, shape_.hidden_dim);
    return layer;
  }

  // A tensor that nothing uses (a bias, an expert, an adapter) means that the answers would be wrong.
  void refuse_leftovers() const {
    for (const TensorInfo& tensor : file_.tensors()) {
      const bool derived = tensor.name == "rope_freqs.weight" || tensor.name.ends_with("rotary_emb.inv_freq");
      if (derived || used_.contains(tensor.name)) continue;
      fail(ErrorCode::kUnsupported, file_.files()[static_cast<size_t>(tensor.file_index)], ": tensor ",
           tensor.name, " is no part of a llama model of ", shape_.num_layers,
           " layers that this engine knows");
    }
  }

  const TensorFile& file_;
  const Shape& shape_;
  const ModelOptions& options_;
  const Names& names_;
  std::set<std::string, std::less<>> used_;
  Weights weights_;
};

}  // namespace

Weights load_weights(const TensorFile& file, const Shape& shape, const ModelOptions& options) {
  return Loader(file, shape, options).load();
}

}  // namespace deepinfer::models::llama
