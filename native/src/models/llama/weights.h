// The weights of a llama model, bound by name, shape and type, and packed.
#pragma once

#include <memory>
#include <vector>

#include "kernels/linear.h"
#include "models/llama/shape.h"
#include "models/model.h"

namespace deepinfer::models::llama {

struct Layer {
  std::vector<float> attention_norm;     // [dim]
  kernels::Linear query_key_value;       // dim -> query_width + 2 * kv_width
  kernels::Linear attention_output;      // query_width -> dim
  std::vector<float> feed_forward_norm;  // [dim]
  kernels::Linear gate_up;               // dim -> 2 * hidden_dim
  kernels::Linear down;                  // hidden_dim -> dim
};

struct Weights {
  PageArena memory;                       // of all packed matrices
  const TensorInfo* embedding = nullptr;  // [vocab_size, dim], read from the file row by row
  std::vector<Layer> layers;
  std::vector<float> final_norm;  // [dim]
  kernels::Linear head;           // dim -> vocab_size
  int64_t num_parameters = 0;
  int64_t num_bytes = 0;  // packed
};

// Packs over the pool; pages of packed tensors are given back to the kernel. Throws Error{kBadFile} or
// Error{kUnsupported} naming the tensor.
Weights load_weights(const TensorFile& file, const Shape& shape, const ModelOptions& options);

}  // namespace deepinfer::models::llama
