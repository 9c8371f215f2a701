// The numbers of a llama model, read from metadata and checked.
#pragma once

#include <string>
#include <vector>

#include "deepinfer/tensor_file.h"

namespace deepinfer::models::llama {

struct Shape {
  std::string name;
  int num_layers = 0;
  int dim = 0;         // width of the residual stream
  int hidden_dim = 0;  // width of the feed-forward layer
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;
  int max_positions = 0;
  float norm_epsilon = 0;
  bool interleaved_rope = false;           // rows of q and k lie in pairs (GGUF), not in halves (safetensors)
  std::vector<float> inverse_frequencies;  // [head_dim / 2], scaling applied, radians per position

  int query_width() const { return num_heads * head_dim; }
  int kv_width() const { return num_kv_heads * head_dim; }
};

// Throws Error{kBadFile} or Error{kUnsupported}.
Shape read_shape(const TensorFile& file);

}  // namespace deepinfer::models::llama
