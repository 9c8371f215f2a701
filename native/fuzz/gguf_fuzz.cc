// Any bytes as a GGUF file.
#include "check_tensors.h"
#include "io/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return deepinfer::fuzz::check_open(data, size, deepinfer::open_gguf);
}
