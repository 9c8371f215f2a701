// LlamaForCausalLM: RMS norms, rotary positions, grouped-query attention, SwiGLU.
#pragma once

#include <memory>

#include "models/model.h"

namespace deepinfer::models::llama {

std::unique_ptr<Model> create(const std::shared_ptr<const TensorFile>& file, const ModelOptions& options);

}  // namespace deepinfer::models::llama
