// Speed of the matrix product by weight format and number of rows, weights rotated through more memory than
// the caches hold.
//
//   bench_kernels [ISA [OUTPUTS INPUTS [ROTATED_MIB]]]     ROTATED_MIB 0: weights stay in the caches
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench.h"
#include "deepinfer/status.h"
#include "kernels/dispatch.h"
#include "kernels/formats/formats.h"
#include "kernels/linear.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::kernels;

void report(const KernelTable& table, ThreadPool& pool, DType dtype, Precision precision, int n, int k,
            int64_t rotated_bytes) {
  const DTypeInfo& info = dtype_info(dtype);
  std::vector<float> values(static_cast<size_t>(n) * static_cast<size_t>(k));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 2654435761u % 1000) / 1000.0f - 0.5f;
  std::vector<std::byte> bytes(values.size() / static_cast<size_t>(info.block_elems) *
                               static_cast<size_t>(info.block_bytes));
  formats::quantise(dtype, values.data(), static_cast<int64_t>(values.size()), bytes.data());
  TensorInfo tensor;
  tensor.name = "bench";
  tensor.dtype = dtype;
  tensor.shape = {n, k};
  tensor.data = bytes.data();
  std::vector<Linear> copies;
  int64_t total = 0;
  do {
    copies.emplace_back().append(pack_matrix(tensor, {}, precision, pool));
    total += copies.back().num_bytes();
  } while (total < rotated_bytes);
  std::printf("%-6s %-5s", info.name,
              precision == Precision::kFast   ? "fast"
              : precision == Precision::kBf16 ? "bf16"
                                              : "fp32");
  size_t next = 0;
  for (const int m : {1, 4, 8, 16, 32, 64, 512}) {
    Activations activations(table, m, k);
    const Multiplier multiplier(table, pool, k);
    activations.begin(m, copies[0]);
    for (int row = 0; row < m; ++row) activations.set_row(row, values.data() + int64_t{row % n} * k);
    std::vector<float> y(static_cast<size_t>(m) * static_cast<size_t>(n));
    const int calls = std::max(1, 256 / m);
    const double seconds = bench::best_seconds(4, 0.05, [&] {
      for (int i = 0; i < calls; ++i) {
        multiplier.run(copies[next++ % copies.size()], activations, {y.data(), n, false});
      }
    });
    const double ops = 2.0 * m * n * k * calls;
    std::printf("  m=%d %.0f", m, ops / seconds * 1e-9);
    if (m == 1)
      std::printf(" (%.1f GB/s)", static_cast<double>(copies[0].num_bytes()) * calls / seconds * 1e-9);
    std::fflush(stdout);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const KernelTable& table = table_for(argc > 1 ? argv[1] : "");
    const int n = argc > 3 ? std::atoi(argv[2]) : 1536, k = argc > 3 ? std::atoi(argv[3]) : 576;
    const int64_t rotated = int64_t{argc > 4 ? std::atoi(argv[4]) : 300} << 20;
    ThreadPool pool(1);
    std::printf("%s, %d outputs, %d inputs; Gop/s of one thread, CPU time\n", table.name, n, k);
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0})
      report(table, pool, dtype, Precision::kFast, n, k, rotated);
    if (k % 256 == 0) {
      for (const DType dtype : {DType::kQ4_K, DType::kQ6_K})
        report(table, pool, dtype, Precision::kFast, n, k, rotated);
    }
    report(table, pool, DType::kBF16, Precision::kBf16, n, k, rotated);
    report(table, pool, DType::kF32, Precision::kFp32, n, k, rotated);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
