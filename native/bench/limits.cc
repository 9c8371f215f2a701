// What this machine can do at best: multiply-adds per second, and reading memory. Shares of a limit in other
// measurements refer to these.
//
//   bench_limits
#include <cstdio>

#include "base/read_rate.h"
#include "deepinfer/threads.h"
#include "measure/peak_rate.h"

int main() {
  for (const int threads : {1, 2}) {
    deepinfer::ThreadPool pool(threads);
    for (const char* kind : {"int8", "bf16", "fp32"})
      std::printf("%d thread%s %-6s %8.0f Gop/s\n", threads, threads == 1 ? " " : "s", kind,
                  deepinfer::peak_gops(kind, 0.2, pool));
    std::printf("%d thread%s memory %8.1f GB/s\n", threads, threads == 1 ? " " : "s",
                deepinfer::dram_read_gbps(0.3, pool));
  }
  return 0;
}
