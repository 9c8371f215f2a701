#include "base/read_rate.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/pages.h"

namespace deepinfer {

double dram_read_gbps(double seconds, ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kBytes = int64_t{256} << 20;
  constexpr int64_t kChunkBytes = 1 << 20, kChunkWords = kChunkBytes / 8;
  constexpr int kChunks = static_cast<int>(kBytes / kChunkBytes);
  // A pass goes through all of the memory, which no cache holds, but is timed in pieces of about a
  // millisecond: among so many, some meet no other job on the machine.
  constexpr int kPieceChunks = 32;
  const Pages pages(kBytes, "the read rate test");
  auto* words = reinterpret_cast<uint64_t*>(pages.data());
  pool.parallel_for(kChunks, 1, [&](int chunk, int) {
    std::fill_n(words + chunk * kChunkWords, kChunkWords, static_cast<uint64_t>(chunk));
  });
  std::vector<uint64_t> sums(kChunks);
  const auto read = [&](int chunk) {
    const uint64_t* at = words + chunk * kChunkWords;
    uint64_t lanes[8] = {};
    for (int64_t i = 0; i < kChunkWords; i += 8) {
      for (int lane = 0; lane < 8; ++lane) lanes[lane] += at[i + lane];
    }
    for (const uint64_t lane : lanes) sums[static_cast<size_t>(chunk)] += lane;
  };
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  double best = 0;
  do {
    for (int first = 0; first < kChunks; first += kPieceChunks) {
      const auto start = Clock::now();
      pool.parallel_for(kPieceChunks, 1, [&](int chunk, int) { read(first + chunk); });
      const double spent = std::chrono::duration<double>(Clock::now() - start).count();
      best = std::max(best, static_cast<double>(kPieceChunks * kChunkBytes) / 1e9 / spent);
    }
  } while (Clock::now() < deadline);
  // The sums are used, so the reads cannot be optimised away.
  return sums.back() == 1 ? 0.0 : best;
}

}  // namespace deepinfer
