// Any bytes as a safetensors file.
#include "check_tensors.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return deepinfer::fuzz::check_open(data, size, deepinfer::open_safetensors_file);
}
