// Names from files inside messages: one line, bounded, valid UTF-8, whatever the file says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "deepinfer/tensor_file.h"

namespace deepinfer {

std::string quote(std::string_view name);                // "blk.0.attn_q.weight"
std::string show_shape(std::span<const int64_t> shape);  // [576, 1536]

}  // namespace deepinfer
