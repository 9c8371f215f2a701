// safetensors: one file, or a folder of one or more with config.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "deepinfer/tensor_file.h"
#include "io/mapped_file.h"

namespace deepinfer {

bool looks_like_safetensors(std::string_view text);  // a plausible header length, then '{'
std::shared_ptr<const TensorFile> open_safetensors_file(std::unique_ptr<MappedFile> file);
std::shared_ptr<const TensorFile> open_safetensors_folder(const std::string& folder);

}  // namespace deepinfer
