// GGUF, versions 2 and 3, little-endian, one file.
#pragma once

#include <memory>

#include "deepinfer/tensor_file.h"
#include "io/mapped_file.h"

namespace deepinfer {

std::shared_ptr<const TensorFile> open_gguf(std::unique_ptr<MappedFile> file);

}  // namespace deepinfer
