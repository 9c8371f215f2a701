// Speed of the matrix product by weight format and number of rows, weights rotated through more memory than
// the caches hold.
//
//   bench_kernels [ISA [OUTPUTS INPUTS [ROTATED_MIB]]]     ROTATED_MIB 0: weights stay in the caches
#include <cstdio>
#include <cstdlib>
#include <string>

#include "deepinfer/status.h"
#include "kernels/dispatch.h"
#include "measure/kernel_rate.h"

namespace {

using namespace deepinfer;
using kernels::Precision;

const char* name_of(Precision precision) {
  if (precision == Precision::kPrecise) return "precise";
  return precision == Precision::kFast ? "fast" : precision == Precision::kBf16 ? "bf16" : "fp32";
}

void report(const std::string& isa, ThreadPool& pool, DType dtype, Precision precision, int n, int k,
            int64_t rotated_bytes) {
  const LinearCase linear{dtype, precision, n, k, {1, 4, 8, 16, 32, 64, 512}};
  std::printf("%-6s %-7s", dtype_info(dtype).name, name_of(precision));
  for (const KernelRate& rate : measure_linear(isa, linear, 0.05, rotated_bytes, pool)) {
    std::printf("  m=%d %.0f", rate.rows, rate.num_ops / rate.seconds * 1e-9);
    if (rate.rows == 1)
      std::printf(" (%.1f GB/s)", static_cast<double>(rate.num_bytes) / rate.seconds * 1e-9);
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string isa = argc > 1 ? argv[1] : "";
    const int n = argc > 3 ? std::atoi(argv[2]) : 1536, k = argc > 3 ? std::atoi(argv[3]) : 576;
    const int64_t rotated = int64_t{argc > 4 ? std::atoi(argv[4]) : 300} << 20;
    ThreadPool pool(1);
    std::printf("%s, %d outputs, %d inputs; Gop/s of one thread, best wall time\n",
                kernels::table_for(isa).name, n, k);
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0})
      for (const Precision precision : {Precision::kFast, Precision::kPrecise})
        report(isa, pool, dtype, precision, n, k, rotated);
    if (k % 256 == 0) {
      for (const DType dtype : {DType::kQ4_K, DType::kQ6_K})
        report(isa, pool, dtype, Precision::kFast, n, k, rotated);
    }
    report(isa, pool, DType::kBF16, Precision::kBf16, n, k, rotated);
    report(isa, pool, DType::kF32, Precision::kFp32, n, k, rotated);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
