// Sizes that come from a file, computed without ever overflowing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "deepinfer/tensor_file.h"

namespace deepinfer {

// Bytes of a tensor of this shape (each dimension >= 0); nothing when they do not fit 63 bits. Rows of block
// formats must be whole blocks: the caller has checked the innermost dimension.
inline std::optional<uint64_t> tensor_bytes(std::span<const int64_t> shape, DType dtype) {
  const DTypeInfo& info = dtype_info(dtype);
  uint64_t num_elems = 1;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(num_elems, static_cast<uint64_t>(dim), &num_elems)) return std::nullopt;
  }
  uint64_t bytes = num_elems / static_cast<uint64_t>(info.block_elems);
  if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(info.block_bytes), &bytes)) return std::nullopt;
  if (num_elems > INT64_MAX || bytes > INT64_MAX) return std::nullopt;
  return bytes;
}

// Sorts by name; throws Error{kBadFile} on two tensors of one name or with common bytes in one file.
void finish_tensors(std::vector<TensorInfo>& tensors, const std::vector<std::string>& files);

}  // namespace deepinfer
