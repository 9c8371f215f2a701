// A tiny llama in memory: every weight format, both file conventions, from a seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "deepinfer/tensor_file.h"
#include "kernels/formats/formats.h"

namespace deepinfer::testing {

struct TinyLlama {
  FileFormat format = FileFormat::kGguf;
  DType dtype = DType::kF32;
  int num_layers = 2;
  int dim = 256;
  int hidden_dim = 512;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 64;
  int vocab_size = 259;
  bool tied = true;
  uint32_t seed = 1;
};

// A TensorFile whose bytes it owns.
class MemoryFile final : public TensorFile {
 public:
  explicit MemoryFile(FileFormat format) {
    format_ = format;
    files_ = {"tiny"};
  }
  void add(const std::string& name, DType dtype, std::vector<int64_t> shape,
           const std::vector<float>& values) {
    const DTypeInfo& info = dtype_info(dtype);
    std::vector<std::byte>& bytes = storage_[name];
    bytes.resize(values.size() / static_cast<size_t>(info.block_elems) *
                 static_cast<size_t>(info.block_bytes));
    formats::quantise(dtype, values.data(), static_cast<int64_t>(values.size()), bytes.data());
    TensorInfo tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    tensor.data = bytes.data();
    tensor.num_bytes = bytes.size();
    tensors_.insert(
        std::upper_bound(tensors_.begin(), tensors_.end(), tensor,
                         [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; }),
        tensor);
  }
  void drop_pages(const TensorInfo&) const override {}  // the bytes are nowhere else
  void set(const std::string& key, MetaValue value) { metadata_[key] = std::move(value); }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const TensorInfo& t) { return t.name == name; });
  }
  // The decoded values of a tensor.
  std::vector<float> values(const std::string& name) const {
    const TensorInfo& tensor = *find(name);
    int64_t count = 1;
    for (const int64_t size : tensor.shape) count *= size;
    std::vector<float> out(static_cast<size_t>(count));
    formats::dequantise(tensor.dtype, tensor.data, count, out.data());
    return out;
  }

 private:
  std::map<std::string, std::vector<std::byte>> storage_;
};

inline std::vector<float> gaussian(std::mt19937& rng, int64_t count, float deviation) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(rng);
  return values;
}

// The rows of each head from halves (i, i + head_dim / 2) to pairs side by side, as GGUF files keep them.
inline std::vector<float> interleave_rows(const std::vector<float>& values, int num_heads, int head_dim,
                                          int dim) {
  std::vector<float> out(values.size());
  for (int h = 0; h < num_heads; ++h) {
    for (int i = 0; i < head_dim; ++i) {
      const int from = h * head_dim + i, to = h * head_dim + 2 * (i % (head_dim / 2)) + i / (head_dim / 2);
      std::copy_n(values.begin() + int64_t{from} * dim, dim, out.begin() + int64_t{to} * dim);
    }
  }
  return out;
}

inline void set_tiny_metadata(MemoryFile& file, const TinyLlama& tiny) {
  const auto number = [](int value) { return static_cast<int64_t>(value); };
  if (tiny.format == FileFormat::kGguf) {
    file.set("general.architecture", std::string("llama"));
    file.set("llama.block_count", number(tiny.num_layers));
    file.set("llama.embedding_length", number(tiny.dim));
    file.set("llama.feed_forward_length", number(tiny.hidden_dim));
    file.set("llama.attention.head_count", number(tiny.num_heads));
    file.set("llama.attention.head_count_kv", number(tiny.num_kv_heads));
    file.set("llama.attention.key_length", number(tiny.head_dim));
    file.set("llama.attention.layer_norm_rms_epsilon", 1e-5);
    file.set("llama.context_length", number(2048));
    file.set("llama.rope.freq_base", 10000.0);
  } else {
    file.set("architectures", std::vector<std::string>{"LlamaForCausalLM"});
    file.set("num_hidden_layers", number(tiny.num_layers));
    file.set("hidden_size", number(tiny.dim));
    file.set("intermediate_size", number(tiny.hidden_dim));
    file.set("num_attention_heads", number(tiny.num_heads));
    file.set("num_key_value_heads", number(tiny.num_kv_heads));
    file.set("head_dim", number(tiny.head_dim));
    file.set("rms_norm_eps", 1e-5);
    file.set("max_position_embeddings", number(2048));
    file.set("rope_theta", 10000.0);
  }
}

// The same seed gives the same model in both conventions (up to the format's rounding, which is per row).
inline std::shared_ptr<MemoryFile> make_tiny_llama(const TinyLlama& tiny) {
  auto file = std::make_shared<MemoryFile>(tiny.format);
  set_tiny_metadata(*file, tiny);
  const bool gguf = tiny.format == FileFormat::kGguf;
  std::mt19937 rng(tiny.seed);
  const auto matrix = [&](const std::string& name, int rows, int columns, int rope_heads = 0) {
    std::vector<float> values =
        gaussian(rng, int64_t{rows} * columns, 1.0f / std::sqrt(static_cast<float>(columns)));
    if (gguf && rope_heads > 0) values = interleave_rows(values, rope_heads, tiny.head_dim, columns);
    file->add(name, tiny.dtype, {rows, columns}, values);
  };
  const auto norm = [&](const std::string& name) {
    std::vector<float> values = gaussian(rng, tiny.dim, 0.2f);
    for (float& value : values) value += 1.0f;
    file->add(name, DType::kF32, {tiny.dim}, values);
  };
  const int queries = tiny.num_heads * tiny.head_dim, keys = tiny.num_kv_heads * tiny.head_dim;
  matrix(gguf ? "token_embd.weight" : "model.embed_tokens.weight", tiny.vocab_size, tiny.dim);
  for (int i = 0; i < tiny.num_layers; ++i) {
    const std::string at = (gguf ? "blk." : "model.layers.") + std::to_string(i) + ".";
    norm(at + (gguf ? "attn_norm.weight" : "input_layernorm.weight"));
    matrix(at + (gguf ? "attn_q.weight" : "self_attn.q_proj.weight"), queries, tiny.dim, tiny.num_heads);
    matrix(at + (gguf ? "attn_k.weight" : "self_attn.k_proj.weight"), keys, tiny.dim, tiny.num_kv_heads);
    matrix(at + (gguf ? "attn_v.weight" : "self_attn.v_proj.weight"), keys, tiny.dim);
    matrix(at + (gguf ? "attn_output.weight" : "self_attn.o_proj.weight"), tiny.dim, queries);
    norm(at + (gguf ? "ffn_norm.weight" : "post_attention_layernorm.weight"));
    matrix(at + (gguf ? "ffn_gate.weight" : "mlp.gate_proj.weight"), tiny.hidden_dim, tiny.dim);
    matrix(at + (gguf ? "ffn_up.weight" : "mlp.up_proj.weight"), tiny.hidden_dim, tiny.dim);
    matrix(at + (gguf ? "ffn_down.weight" : "mlp.down_proj.weight"), tiny.dim, tiny.hidden_dim);
  }
  norm(gguf ? "output_norm.weight" : "model.norm.weight");
  if (!tiny.tied) matrix(gguf ? "output.weight" : "lm_head.weight", tiny.vocab_size, tiny.dim);
  return file;
}

}  // namespace deepinfer::testing
