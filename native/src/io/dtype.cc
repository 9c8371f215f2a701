#include "deepinfer/status.h"
#include "deepinfer/tensor_file.h"

namespace deepinfer {
namespace {

// Indexed by DType.
constexpr DTypeInfo kInfos[] = {
    {"F32", 1, 4},      {"F16", 1, 2},    {"BF16", 1, 2},   {"Q4_0", 32, 18},   {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},   {"Q5_1", 32, 24}, {"Q8_0", 32, 34}, {"Q4_K", 256, 144}, {"Q5_K", 256, 176},
    {"Q6_K", 256, 210}, {"I8", 1, 1},     {"I16", 1, 2},    {"I32", 1, 4},      {"I64", 1, 8},
    {"U8", 1, 1},       {"F64", 1, 8},    {"BOOL", 1, 1},   {"F8_E4M3", 1, 1},  {"F8_E8M0", 1, 1},
};
static_assert(sizeof kInfos / sizeof kInfos[0] == static_cast<size_t>(DType::kF8_E8M0) + 1);

}  // namespace

const DTypeInfo& dtype_info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  DI_CHECK(index < sizeof kInfos / sizeof kInfos[0], index);
  return kInfos[index];
}

}  // namespace deepinfer
