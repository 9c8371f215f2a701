// LlamaForCausalLM in double precision, written to be read: no cache, no tricks.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "support/tiny_llama.h"

namespace deepinfer::testing {

using Doubles = std::vector<double>;

inline Doubles multiply(const std::vector<float>& weights, const Doubles& x) {
  Doubles y(weights.size() / x.size());
  for (size_t n = 0; n < y.size(); ++n) {
    for (size_t k = 0; k < x.size(); ++k) y[n] += static_cast<double>(weights[n * x.size() + k]) * x[k];
  }
  return y;
}

inline Doubles reference_norm(const Doubles& x, const std::vector<float>& weight) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  Doubles y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5) * weight[i];
  return y;
}

// Rotates pairs (i, i + head_dim / 2) of every head.
inline void reference_rope(Doubles& heads, int head_dim, int position) {
  const size_t dim = static_cast<size_t>(head_dim), half = dim / 2;
  for (size_t h = 0; h < heads.size(); h += dim) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(i) / head_dim);
      const double a = heads[h + i], b = heads[h + half + i];
      heads[h + i] = a * std::cos(angle) - b * std::sin(angle);
      heads[h + half + i] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

// One head's attention over positions 0 .. keys.size() - 1; adds into out.
inline void reference_attention(const double* query, const std::vector<Doubles>& keys,
                                const std::vector<Doubles>& values, size_t kv_at, size_t head_dim,
                                double* out) {
  Doubles weights;
  double total = 0;
  for (const Doubles& key : keys) {
    double score = 0;
    for (size_t d = 0; d < head_dim; ++d) score += query[d] * key[kv_at + d];
    weights.push_back(std::exp(score / std::sqrt(static_cast<double>(head_dim))));
    total += weights.back();
  }
  for (size_t t = 0; t < keys.size(); ++t) {
    for (size_t d = 0; d < head_dim; ++d) out[d] += weights[t] / total * values[t][kv_at + d];
  }
}

// Logits [tokens, vocab_size] of a model in the safetensors convention.
inline Doubles reference_logits(const MemoryFile& file, const TinyLlama& tiny,
                                const std::vector<int32_t>& tokens) {
  const size_t dim = static_cast<size_t>(tiny.dim), head_dim = static_cast<size_t>(tiny.head_dim);
  const std::vector<float> embedding = file.values("model.embed_tokens.weight");
  std::vector<Doubles> stream;
  for (const int32_t token : tokens) {
    const auto row = embedding.begin() + token * static_cast<int64_t>(dim);
    stream.emplace_back(row, row + static_cast<int64_t>(dim));
  }
  for (int i = 0; i < tiny.num_layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    const auto weights = [&](const char* name) { return file.values(at + name + ".weight"); };
    const auto q = weights("self_attn.q_proj"), k = weights("self_attn.k_proj"),
               v = weights("self_attn.v_proj");
    const auto o = weights("self_attn.o_proj"), gate = weights("mlp.gate_proj"), up = weights("mlp.up_proj");
    const auto down = weights("mlp.down_proj");
    const auto norm1 = weights("input_layernorm"), norm2 = weights("post_attention_layernorm");
    std::vector<Doubles> keys, values;
    for (size_t t = 0; t < stream.size(); ++t) {
      Doubles& x = stream[t];
      const Doubles input = reference_norm(x, norm1);
      Doubles queries = multiply(q, input);
      keys.push_back(multiply(k, input));
      values.push_back(multiply(v, input));
      reference_rope(queries, tiny.head_dim, static_cast<int>(t));
      reference_rope(keys.back(), tiny.head_dim, static_cast<int>(t));
      Doubles attended(queries.size());
      const size_t group = static_cast<size_t>(tiny.num_heads / tiny.num_kv_heads);
      for (size_t h = 0; h < static_cast<size_t>(tiny.num_heads); ++h) {
        reference_attention(&queries[h * head_dim], keys, values, h / group * head_dim, head_dim,
                            &attended[h * head_dim]);
      }
      const Doubles output = multiply(o, attended);
      for (size_t d = 0; d < dim; ++d) x[d] += output[d];
      const Doubles inner = reference_norm(x, norm2);
      Doubles gated = multiply(gate, inner);
      const Doubles linear = multiply(up, inner);
      for (size_t d = 0; d < gated.size(); ++d) gated[d] = gated[d] / (1.0 + std::exp(-gated[d])) * linear[d];
      const Doubles fed = multiply(down, gated);
      for (size_t d = 0; d < dim; ++d) x[d] += fed[d];
    }
  }
  const auto final_norm = file.values("model.norm.weight");
  const auto head = tiny.tied ? embedding : file.values("lm_head.weight");
  Doubles logits;
  for (const Doubles& x : stream) {
    const Doubles row = multiply(head, reference_norm(x, final_norm));
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

}  // namespace deepinfer::testing
