#include "measure/peak_rate.h"

#include <cstdint>

#include "deepinfer/status.h"
#include "measure/best_time.h"

namespace deepinfer {
namespace {

struct Loop {
  void (*run)() = nullptr;  // kRounds rounds of kSums instructions
  int ops_per_instruction = 0;
};

constexpr int64_t kRounds = 1 << 14;
constexpr int kSums = 12;

#if defined(__x86_64__)

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
DI_PEAK(int8_256, "vpmaddubsw", "ymm")
DI_PEAK(bf16_512, "vdpbf16ps", "zmm")
DI_PEAK(fp32_512, "vfmadd231ps", "zmm")
DI_PEAK(fp32_256, "vfmadd231ps", "ymm")

Loop fp32_loop() {
  if (__builtin_cpu_supports("avx512f")) return {fp32_512, 32};
  if (__builtin_cpu_supports("fma")) return {fp32_256, 16};
  return {};
}

Loop loop_for(std::string_view kind) {
  if (kind == "int8" && __builtin_cpu_supports("avx512vnni")) return {int8_512, 128};
  if (kind == "int8" && __builtin_cpu_supports("avx2")) return {int8_256, 48};
  if (kind == "bf16" && __builtin_cpu_supports("avx512bf16")) return {bf16_512, 64};
  return fp32_loop();
}

#else

Loop loop_for(std::string_view) { return {}; }

#endif

}  // namespace

double peak_gops(std::string_view kind, double seconds, ThreadPool& pool) {
  if (kind != "int8" && kind != "bf16" && kind != "fp32")
    fail(ErrorCode::kBadRequest, "no arithmetic is called ", std::string(kind), "; int8, bf16 or fp32");
  const Loop loop = loop_for(kind);
  if (loop.run == nullptr) return 0;
  const int tasks = pool.num_threads() * 16;  // many short ones: a thread that comes late costs little
  const double best =
      best_wall_seconds(2, seconds, [&] { pool.parallel_for(tasks, 1, [&](int, int) { loop.run(); }); });
  return 1e-9 * tasks * kRounds * kSums * loop.ops_per_instruction / best;
}

}  // namespace deepinfer
