// The header of one safetensors file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deepinfer/tensor_file.h"
#include "io/mapped_file.h"

namespace deepinfer {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;              // placed in the file, with this file_index
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// Throws Error{kBadFile} in one sentence naming file, tensor, found and wanted.
SafetensorsHeader read_safetensors_header(const MappedFile& file, int file_index);

}  // namespace deepinfer
