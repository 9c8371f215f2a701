// The numbers that GGUF files use for types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepinfer/tensor_file.h"

namespace deepinfer {

enum class GgufValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// Bytes of one value of a fixed size; 0 for strings, arrays and unknown numbers.
int gguf_value_bytes(uint32_t type);

// A tensor type by its number in the file; nothing when this engine does not read it.
std::optional<DType> gguf_dtype(uint32_t type);
std::string gguf_type_name(uint32_t type);  // also of types that are not read; "type 77" when unknown
const char* gguf_supported_types();         // for messages

}  // namespace deepinfer
