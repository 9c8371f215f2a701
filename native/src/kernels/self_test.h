// Every kernel of a level against the scalar twin, bit for bit, on shapes of real models. Fast enough to run
// at installation and in `doctor`.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace deepinfer::kernels {

struct SelfTestResult {
  std::string kernel;  // "gemm Q4_1 m=64"
  std::string isa;
  bool ok = false;
  std::string detail;  // the first difference, or how much was compared
};

// Tests `level` against `reference` (the scalar table).
std::vector<SelfTestResult> self_test(const KernelTable& level, const KernelTable& reference);

// Tests every level this CPU can run against the scalar one.
std::vector<SelfTestResult> self_test_all();

}  // namespace deepinfer::kernels
