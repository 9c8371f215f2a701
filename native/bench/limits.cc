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

namespace {

constexpr int64_t kRounds = 1 << 16;
constexpr int kSums = 12;

// Twelve independent sums hide the latency of one instruction. Whole loops in assembly: a compiler moves
// registers about and would measure itself.
#define DI_TWELVE(op, r)                                                                               \
  op " %%" r "14, %%" r "15, %%" r "0\n" op " %%" r "14, %%" r "15, %%" r "1\n" op " %%" r "14, %%" r  \
     "15, %%" r "2\n" op " %%" r "14, %%" r "15, %%" r "3\n" op " %%" r "14, %%" r "15, %%" r "4\n" op \
     " %%" r "14, %%" r "15, %%" r "5\n" op " %%" r "14, %%" r "15, %%" r "6\n" op " %%" r "14, %%" r  \
     "15, %%" r "7\n" op " %%" r "14, %%" r "15, %%" r "8\n" op " %%" r "14, %%" r "15, %%" r "9\n" op \
     " %%" r "14, %%" r "15, %%" r "10\n" op " %%" r "14, %%" r "15, %%" r "11\n"
#define DI_PEAK(name, op, r)                                                                                \
  void name() {                                                                                             \
    int64_t left = kRounds;                                                                                 \
    asm volatile(                                                                                           \
        "vpxor %%xmm14, %%xmm14, %%xmm14\nvpxor %%xmm15, %%xmm15, %%xmm15\n"                                \
        "1:\n" DI_TWELVE(op, r) "dec %0\njnz 1b\nvzeroupper\n"                                              \
        : "+r"(left)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
          "xmm10", "xmm11", "xmm14", "xmm15");                                                              \
  }
DI_PEAK(int8_512, "vpdpbusd", "zmm")
DI_PEAK(bf16_512, "vdpbf16ps", "zmm")
DI_PEAK(fp32_512, "vfmadd231ps", "zmm")
DI_PEAK(fp32_256, "vfmadd231ps", "ymm")

void report(const char* name, void (*loop)(), int ops_per_instruction) {
  const double seconds = deepinfer::bench::best_seconds(5, 0.05, loop);
  std::printf("%-24s %8.0f Gop/s per core\n", name, 1e-9 * kSums * ops_per_instruction * kRounds / seconds);
}

}  // namespace

int main() {
  if (__builtin_cpu_supports("avx512vnni")) report("int8 dot, 512 bit", int8_512, 128);
  if (__builtin_cpu_supports("avx512bf16")) report("bf16 dot, 512 bit", bf16_512, 64);
  if (__builtin_cpu_supports("avx512f")) report("fp32, 512 bit", fp32_512, 32);
  if (__builtin_cpu_supports("fma")) report("fp32, 256 bit", fp32_256, 16);
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
