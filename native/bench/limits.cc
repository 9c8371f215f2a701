// What this machine can do at best: multiply-adds per second of one core, and reading memory. Shares of a
// limit in other measurements refer to these.
//
//   bench_limits
#include <cstdint>
#include <cstdio>

#include "base/read_rate.h"
#include "bench.h"
#include "deepinfer/threads.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace {

constexpr int kRounds = 1 << 16;

// Twenty independent sums hide the latency; assembly keeps the compiler from moving registers about.
#define DI_TWENTY(op)                                                                                   \
  op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11) op(12) op(13) op(14) op(15) \
      op(16) op(17) op(18) op(19)
#define DI_PEAK(name, isa, type)             \
  __attribute__((target(isa))) void name() { \
    type sums[20] = {};                      \
    const type a = {}, b = {};               \
    for (int i = 0; i < kRounds; ++i) {      \
      DI_TWENTY(DI_ONE_##name)               \
    }                                        \
    asm volatile("" ::"m"(sums));            \
  }
#define DI_ONE_int8_512(i) asm volatile("vpdpbusd %1, %2, %0" : "+v"(sums[i]) : "v"(a), "v"(b));
#define DI_ONE_bf16_512(i) asm volatile("vdpbf16ps %1, %2, %0" : "+v"(sums[i]) : "v"(a), "v"(b));
#define DI_ONE_fp32_512(i) asm volatile("vfmadd231ps %1, %2, %0" : "+v"(sums[i]) : "v"(a), "v"(b));
#define DI_ONE_fp32_256(i) asm volatile("vfmadd231ps %1, %2, %0" : "+x"(sums[i]) : "x"(a), "x"(b));
DI_PEAK(int8_512, "avx512f,avx512vnni", __m512i)
DI_PEAK(bf16_512, "avx512f,avx512bf16", __m512i)
DI_PEAK(fp32_512, "avx512f", __m512)

// Sixteen registers only: twelve sums.
__attribute__((target("avx2,fma"))) void fp32_256() {
  __m256 sums[12] = {};
  const __m256 a = {}, b = {};
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) DI_ONE_fp32_256(j)
  }
  asm volatile("" ::"m"(sums));
}

void report(const char* name, void (*loop)(), double ops_per_round) {
  const double seconds = deepinfer::bench::best_seconds(5, 0.05, loop);
  std::printf("%-24s %8.0f Gop/s per core\n", name, ops_per_round * kRounds / seconds * 1e-9);
}

}  // namespace

int main() {
  if (__builtin_cpu_supports("avx512vnni")) report("int8 dot, 512 bit", int8_512, 20 * 128);
  if (__builtin_cpu_supports("avx512bf16")) report("bf16 dot, 512 bit", bf16_512, 20 * 64);
  if (__builtin_cpu_supports("avx512f")) report("fp32, 512 bit", fp32_512, 20 * 32);
  if (__builtin_cpu_supports("fma")) report("fp32, 256 bit", fp32_256, 12 * 16);
#else
int main() {
#endif
  for (const int threads : {1, 2}) {
    deepinfer::ThreadPool pool(threads);
    std::printf("memory read, %d thread%s %8.1f GB/s (wall time)\n", threads, threads == 1 ? " " : "s",
                deepinfer::dram_read_gbps(0.3, pool));
  }
  return 0;
}
