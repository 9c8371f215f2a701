#include "models/llama/shape.h"

#include <cmath>
#include <numbers>

#include "deepinfer/status.h"
#include "kernels/formats/formats.h"
#include "kernels/kernels.h"
#include "models/metadata.h"

namespace deepinfer::models::llama {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;  // more than any model; keeps products of sizes far from overflow

// How positions become angles.
struct Rope {
  double theta = 10000.0;
  std::string scaling = "none";  // none, linear, llama3
  double factor = 1.0;
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;
  double original_positions = 8192;
};

[[noreturn]] void unsupported(const TensorFile& file, const std::string& what) {
  fail(ErrorCode::kUnsupported, file.files().empty() ? "the model" : file.files().front(), ": ", what);
}

// The frequencies as the models were trained with: computed in fp32, low ones stretched by the scaling.
std::vector<float> inverse_frequencies(const Rope& rope, int head_dim) {
  std::vector<float> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    double frequency = 1.0f / static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    if (rope.scaling == "linear") frequency /= rope.factor;
    if (rope.scaling == "llama3") {
      const double wavelength = 2.0 * std::numbers::pi / frequency;
      const double low = rope.original_positions / rope.low_frequency_factor;
      const double high = rope.original_positions / rope.high_frequency_factor;
      const double smooth = (rope.original_positions / wavelength - rope.low_frequency_factor) /
                            (rope.high_frequency_factor - rope.low_frequency_factor);
      if (wavelength > low) {
        frequency /= rope.factor;
      } else if (wavelength >= high) {
        frequency = (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
      }
    }
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

void check(const TensorFile& file, const Shape& shape) {
  if (shape.num_heads % shape.num_kv_heads != 0) {
    fail(ErrorCode::kBadFile, file.files().front(), ": ", shape.num_heads,
         " attention heads are not a multiple of ", shape.num_kv_heads, " key-value heads");
  }
  if (shape.head_dim % kernels::kLanes != 0 || shape.head_dim > kernels::kMaxHeadDim) {
    unsupported(file, str_cat("head size ", shape.head_dim, " is not supported; supported: multiples of ",
                              kernels::kLanes, " up to ", kernels::kMaxHeadDim));
  }
  if (shape.dim % kernels::kBlock != 0 || shape.hidden_dim % kernels::kBlock != 0 ||
      shape.query_width() % kernels::kBlock != 0) {
    unsupported(file, str_cat("widths ", shape.dim, ", ", shape.hidden_dim, " and ", shape.query_width(),
                              " must be multiples of ", kernels::kBlock));
  }
}

int vocabulary(const TensorFile& file, const char* embedding) {
  const TensorInfo* tensor = file.find(embedding);
  if (tensor == nullptr || tensor->shape.size() != 2 || tensor->shape[0] < 1 ||
      tensor->shape[0] > (1 << 24)) {
    fail(ErrorCode::kBadFile, file.files().front(), ": tensor ", embedding, " is ",
         tensor == nullptr ? "missing" : "no [vocabulary, width] matrix");
  }
  return static_cast<int>(tensor->shape[0]);
}

// llama3 scaling comes in GGUF as a tensor of divisors.
void apply_rope_factors(const TensorFile& file, Shape& shape) {
  if (file.find("rope_freqs.weight") == nullptr) return;
  const int64_t want[] = {shape.head_dim / 2};
  const DType types[] = {DType::kF32};
  const TensorInfo& tensor = file.require("rope_freqs.weight", want, types);
  std::vector<float> factors(shape.inverse_frequencies.size());
  formats::dequantise(tensor.dtype, tensor.data, want[0], factors.data());
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0))
      fail(ErrorCode::kBadFile, file.files().front(), ": tensor rope_freqs.weight must be positive");
    shape.inverse_frequencies[i] /= factors[i];
  }
}

Shape read_gguf(const TensorFile& file) {
  const Metadata meta(file);
  Shape shape;
  shape.name = meta.text_or("general.name", "");
  shape.num_layers = static_cast<int>(meta.whole("llama.block_count", 1, 10000));
  shape.dim = static_cast<int>(meta.whole("llama.embedding_length", 1, kMaxWidth));
  shape.hidden_dim = static_cast<int>(meta.whole("llama.feed_forward_length", 1, kMaxWidth));
  shape.num_heads = static_cast<int>(meta.whole("llama.attention.head_count", 1, 4096));
  shape.num_kv_heads =
      static_cast<int>(meta.whole_or("llama.attention.head_count_kv", 1, 4096, shape.num_heads));
  shape.head_dim = static_cast<int>(
      meta.whole_or("llama.attention.key_length", 1, kMaxWidth, shape.dim / shape.num_heads));
  if (meta.whole_or("llama.attention.value_length", 1, kMaxWidth, shape.head_dim) != shape.head_dim) {
    unsupported(file, "keys and values of different sizes are not supported");
  }
  if (meta.whole_or("llama.rope.dimension_count", 1, kMaxWidth, shape.head_dim) != shape.head_dim) {
    unsupported(file, "rotation of a part of each head is not supported");
  }
  if (meta.whole_or("llama.expert_count", 0, 1 << 20, 0) != 0) {
    unsupported(file, "llama with experts is not supported");
  }
  shape.max_positions = static_cast<int>(meta.whole("llama.context_length", 1, 1 << 30));
  shape.norm_epsilon = static_cast<float>(meta.real("llama.attention.layer_norm_rms_epsilon"));
  shape.interleaved_rope = true;
  shape.vocab_size = vocabulary(file, "token_embd.weight");

  Rope rope;
  rope.theta = meta.real_or("llama.rope.freq_base", rope.theta);
  rope.scaling = meta.text_or("llama.rope.scaling.type", "none");
  rope.factor = meta.real_or("llama.rope.scaling.factor", meta.real_or("llama.rope.scale_linear", 1.0));
  if (meta.has("llama.rope.scale_linear") && rope.scaling == "none") rope.scaling = "linear";
  if (rope.scaling != "none" && rope.scaling != "linear") {
    unsupported(file, str_cat("rope scaling \"", rope.scaling,
                              "\" is not supported; supported: none, linear, llama3"));
  }
  if (!(rope.theta > 0) || !(rope.factor > 0)) meta.bad("llama.rope.freq_base", "a positive number");
  check(file, shape);
  shape.inverse_frequencies = inverse_frequencies(rope, shape.head_dim);
  apply_rope_factors(file, shape);
  return shape;
}

// Newer configurations keep all of it under rope_parameters, older ones under rope_scaling and rope_theta.
Rope read_hf_rope(const TensorFile& file, const Metadata& meta, int max_positions) {
  const std::string at = meta.has("rope_parameters.rope_type") ? "rope_parameters." : "rope_scaling.";
  Rope rope;
  rope.theta = meta.real_or("rope_parameters.rope_theta", meta.real_or("rope_theta", rope.theta));
  std::string type = meta.text_or(at + "rope_type", meta.text_or(at + "type", "default"));
  if (type == "default") type = "none";
  rope.scaling = type;
  if (type == "none") return rope;
  if (type != "linear" && type != "llama3") {
    unsupported(file,
                str_cat("rope scaling \"", type, "\" is not supported; supported: default, linear, llama3"));
  }
  rope.factor = meta.real(at + "factor");
  if (type == "llama3") {
    rope.low_frequency_factor = meta.real(at + "low_freq_factor");
    rope.high_frequency_factor = meta.real(at + "high_freq_factor");
    rope.original_positions = meta.real_or(at + "original_max_position_embeddings", max_positions);
    if (!(rope.high_frequency_factor > rope.low_frequency_factor) || !(rope.low_frequency_factor > 0)) {
      meta.bad(at + "high_freq_factor", "a number above low_freq_factor, both positive");
    }
  }
  if (!(rope.factor > 0) || !(rope.theta > 0)) meta.bad(at + "factor", "a positive number");
  return rope;
}

Shape read_hf(const TensorFile& file) {
  const Metadata meta(file);
  Shape shape;
  shape.name = meta.text_or("_name_or_path", "");
  shape.num_layers = static_cast<int>(meta.whole("num_hidden_layers", 1, 10000));
  shape.dim = static_cast<int>(meta.whole("hidden_size", 1, kMaxWidth));
  shape.hidden_dim = static_cast<int>(meta.whole("intermediate_size", 1, kMaxWidth));
  shape.num_heads = static_cast<int>(meta.whole("num_attention_heads", 1, 4096));
  shape.num_kv_heads = static_cast<int>(meta.whole_or("num_key_value_heads", 1, 4096, shape.num_heads));
  shape.head_dim = static_cast<int>(meta.whole_or("head_dim", 1, kMaxWidth, shape.dim / shape.num_heads));
  shape.max_positions = static_cast<int>(meta.whole_or("max_position_embeddings", 1, 1 << 30, 2048));
  shape.norm_epsilon = static_cast<float>(meta.real_or("rms_norm_eps", 1e-6));
  if (const std::string act = meta.text_or("hidden_act", "silu"); act != "silu") {
    unsupported(file, str_cat("activation \"", act, "\" is not supported; supported: silu"));
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (meta.flag_or(key, false)) unsupported(file, str_cat(key, " is not supported"));
  }
  shape.vocab_size = vocabulary(file, "model.embed_tokens.weight");
  check(file, shape);
  shape.inverse_frequencies =
      inverse_frequencies(read_hf_rope(file, meta, shape.max_positions), shape.head_dim);
  return shape;
}

}  // namespace

Shape read_shape(const TensorFile& file) {
  return file.format() == FileFormat::kGguf ? read_gguf(file) : read_hf(file);
}

}  // namespace deepinfer::models::llama
