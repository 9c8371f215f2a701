// What must hold for every model file that is accepted.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "deepinfer/status.h"
#include "deepinfer/tensor_file.h"
#include "fuzz.h"
#include "io/mapped_file.h"

namespace deepinfer::fuzz {

inline std::unique_ptr<MappedFile> file_of(const uint8_t* data, size_t size) {
  return std::make_unique<MappedFile>("input", std::as_bytes(std::span(data, size)));
}

inline void check_tensors(const TensorFile& file, const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  uint64_t total = 0;
  unsigned sum = 0;
  for (const TensorInfo& t : file.tensors()) {
    FUZZ_CHECK(file.find(t.name) == &t);
    FUZZ_CHECK(t.data == begin + t.file_offset);
    FUZZ_CHECK(t.file_offset <= size && t.num_bytes <= size - t.file_offset);
    for (uint64_t i = 0; i < t.num_bytes; i += 1 + t.num_bytes / 16) sum += static_cast<unsigned>(t.data[i]);
    if (t.num_bytes != 0) sum += static_cast<unsigned>(t.data[t.num_bytes - 1]);
    total += t.num_bytes;
    FUZZ_CHECK(&file.require(t.name, t.shape, std::span(&t.dtype, 1)) == &t);
  }
  FUZZ_CHECK(total <= size);  // no byte belongs to two tensors
  volatile unsigned sink = sum;
  (void)sink;
}

template <typename Open>
int check_open(const uint8_t* data, size_t size, const Open& open) {
  if (size == 0) return 0;
  try {
    check_tensors(*open(file_of(data, size)), data, size);
  } catch (const Error& error) {
    FUZZ_CHECK(error.code() == ErrorCode::kBadFile || error.code() == ErrorCode::kUnsupported);
    FUZZ_CHECK(is_message(error.what()));
  }
  return 0;
}

}  // namespace deepinfer::fuzz
